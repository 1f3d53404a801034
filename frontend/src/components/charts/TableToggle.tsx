interface Props {
  title: string;
  /** The word for what the table replaces. */
  chart?: string;
  asTable: boolean;
  onChange: (asTable: boolean) => void;
}

/** Shows the values of a chart as a table, or the chart again. On phones it extends beyond its line, which does not become higher. */
export function TableToggle({ title, chart = "chart", asTable, onChange }: Props) {
  return (
    <button
      type="button"
      aria-pressed={asTable}
      aria-label={`${title} as a table`}
      className="ml-auto rounded-box px-1 text-soft hover:text-accent max-tablet:relative max-tablet:z-1 max-tablet:-my-[14px] max-tablet:-mr-2 max-tablet:h-11 max-tablet:px-3"
      onClick={() => {
        onChange(!asTable);
      }}
    >
      {asTable ? chart : "table"}
    </button>
  );
}

import { Field } from "@/components/Field";

interface Props {
  text: string;
  /** Lines with an error. */
  errorLines: ReadonlySet<number>;
  onChange: (text: string) => void;
}

const MIN_LINES = 24;
const YAML_ID = "spec-yaml";

/** The same configuration as text; omitted fields keep their defaults. */
export function YamlEditor({ text, errorLines, onChange }: Props) {
  const lines = text.split("\n").length;
  const rows = Math.max(MIN_LINES, lines + 1);
  return (
    <Field
      id={YAML_ID}
      label="Configuration as YAML"
      help="The same fields as in the form and the command line. JSON works too. Fields you leave out keep their defaults."
    >
      {(control) => (
        <div className="control flex overflow-hidden font-mono text-mono focus-within:border-accent">
          <ol aria-hidden className="shrink-0 border-r bg-raised py-3 text-right text-soft select-none">
            {Array.from({ length: rows }, (_, index) => (
              <li key={index} className={`px-2 ${errorLines.has(index + 1) ? "bg-bad text-surface" : ""}`}>
                {index < lines ? index + 1 : "\u00a0"}
              </li>
            ))}
          </ol>
          <textarea
            {...control}
            aria-invalid={errorLines.size > 0 ? true : undefined}
            rows={rows}
            wrap="off"
            spellCheck={false}
            autoCapitalize="off"
            className="block min-w-0 flex-1 resize-none overflow-x-auto bg-transparent px-3 py-3 outline-none"
            value={text}
            onChange={(event) => {
              onChange(event.target.value);
            }}
          />
        </div>
      )}
    </Field>
  );
}

/** Selects a line of the text. */
export function goToLine(line: number): void {
  const area = document.getElementById(YAML_ID);
  if (!(area instanceof HTMLTextAreaElement)) return;
  const lines = area.value.split("\n");
  const from = lines.slice(0, line - 1).reduce((sum, line) => sum + line.length + 1, 0);
  area.focus();
  area.setSelectionRange(from, from + (lines[line - 1]?.length ?? 0));
}

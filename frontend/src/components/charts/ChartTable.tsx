import { measuredValues, type ChartLine } from "@/components/charts/chartOptions";

interface Props {
  title: string;
  x: readonly number[];
  xName: string;
  xText: (value: number) => string;
  lines: readonly ChartLine[];
  yText: (value: number) => string;
  height: number;
}

const MAX_ROWS = 100;

/** A chart's values, newest first: at most 100 of them, evenly sampled. */
export function ChartTable({ title, x, xName, xText, lines, yText, height }: Props) {
  const every = Math.max(1, Math.ceil(x.length / MAX_ROWS));
  const rows = x.map((_, index) => x.length - 1 - index).filter((_, index) => index % every === 0);
  return (
    <div role="region" aria-label={`${title}, table`} tabIndex={0} className="overflow-auto" style={{ height }}>
      <table className="w-full text-small">
        <thead className="sticky top-0 bg-surface text-soft">
          <tr>
            <th scope="col" className="px-2 py-1 text-right font-medium">
              {xName}
            </th>
            {lines.map(({ label }) => (
              <th key={label} scope="col" className="px-2 py-1 text-right font-medium">
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row} className="border-t">
              <td className="px-2 py-0.5 text-right text-soft">{xText(x[row] ?? 0)}</td>
              {lines.map((line) => (
                <td key={line.label} className="px-2 py-0.5 text-right">
                  {cell(measuredValues(line)[row], yText)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function cell(value: number | null | undefined, text: (value: number) => string): string {
  return value === null || value === undefined ? "–" : text(value);
}

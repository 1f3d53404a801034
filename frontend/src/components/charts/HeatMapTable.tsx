import type { HeatMap } from "@/lib/charts/heatMap";
import { count } from "@/lib/format";

interface Props {
  title: string;
  rowName: string;
  map: HeatMap;
  text: (value: number) => string;
  height: number;
}

const MAX_COLUMNS = 8;

/** A heat map's values: every row and its newest columns, newest first. */
export function HeatMapTable({ title, rowName, map, text, height }: Props) {
  const columns = map.columns.map(({ to }, index) => ({ to, index })).slice(-MAX_COLUMNS).reverse();
  return (
    <div role="region" aria-label={`${title}, table`} tabIndex={0} className="overflow-auto" style={{ height }}>
      <table className="w-full text-small">
        <thead className="sticky top-0 bg-surface text-soft">
          <tr>
            <th scope="col" className="px-2 py-1 text-right font-medium">
              {rowName}
            </th>
            {columns.map(({ to }) => (
              <th key={to} scope="col" className="px-2 py-1 text-right font-medium">
                step {count(to)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {map.labels.map((label, row) => (
            <tr key={label} className="border-t">
              <th scope="row" className="px-2 py-0.5 text-right font-normal text-soft">
                {label}
              </th>
              {columns.map(({ index }) => {
                const value = map.cells[row]?.[index];
                return (
                  <td key={index} className="px-2 py-0.5 text-right">
                    {value === null || value === undefined ? "–" : text(value)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

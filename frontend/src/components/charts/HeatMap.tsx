import { useEffect, useRef, useState, type KeyboardEvent, type MouseEvent, type ReactNode } from "react";
import { HeatMapLegend } from "@/components/charts/HeatMapLegend";
import { HeatMapTable } from "@/components/charts/HeatMapTable";
import { TableToggle } from "@/components/charts/TableToggle";
import { heatHeight, shadeOf, viridis, type HeatColumn, type HeatMap as HeatMapData } from "@/lib/charts/heatMap";
import { count } from "@/lib/format";

interface Props {
  title: string;
  /** What a row represents: `layer`. */
  rowName: string;
  map: HeatMapData;
  text: (value: number) => string;
  /** The selected row. */
  selectedRow: number;
  onSelectRow: (row: number) => void;
  /** Controls next to the title. */
  controls: ReactNode;
  children: ReactNode;
}

interface Cell {
  row: number;
  column: number;
}

const MOVE_BY_KEY: Record<string, [number, number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  Home: [0, -Infinity],
  End: [0, Infinity],
};

/** A heat map, readable with the pointer and arrow keys. Enter or a click selects the row. */
export function HeatMap({ title, rowName, map, text, selectedRow, onSelectRow, controls, children }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cell, setCell] = useState<Cell | null>(null);
  const [asTable, setAsTable] = useState(false);
  const [rows, columns] = [map.labels.length, map.columns.length];
  const height = heatHeight(rows);
  const current = cell !== null && cell.row < rows && cell.column < columns ? cell : null;

  useEffect(() => {
    if (canvas.current !== null) paint(canvas.current, map);
  }, [map, asTable]);

  return (
    <figure className="panel flex min-w-0 flex-col p-3">
      <div className="mb-2 flex flex-wrap items-center gap-x-3 gap-y-2 text-small">
        <h2 className="text-body font-medium">{title}</h2>
        {controls}
        <TableToggle title={title} chart="map" asTable={asTable} onChange={setAsTable} />
      </div>
      {asTable ? (
        <HeatMapTable title={title} rowName={rowName} map={map} text={text} height={height + 22} />
      ) : (
        <div className="grid grid-cols-[auto_minmax(0,1fr)] gap-x-2 text-small text-soft">
          <div aria-hidden className="relative w-6 text-right" style={{ height }}>
            {ticks(rows, Math.floor(height / 16)).map((row) => (
              <span key={row} className="absolute right-0 -translate-y-1/2" style={{ top: `${((row + 0.5) / rows) * 100}%` }}>
                {map.labels[row]}
              </span>
            ))}
          </div>
          <div
            role="slider"
            tabIndex={0}
            aria-label={`${title}: use the arrow keys to read cells and Enter to select the ${rowName}`}
            aria-valuemin={1}
            aria-valuemax={rows * columns}
            aria-valuenow={1 + (current === null ? selectedRow * columns + columns - 1 : current.row * columns + current.column)}
            aria-valuetext={cellText(current ?? { row: selectedRow, column: columns - 1 })}
            className="relative cursor-crosshair bg-raised"
            style={{ height }}
            onKeyDown={onKey}
            onMouseMove={(event) => {
              setCell(cellUnder(event));
            }}
            onMouseLeave={() => {
              setCell(null);
            }}
            onBlur={() => {
              setCell(null);
            }}
            onClick={(event) => {
              onSelectRow(cellUnder(event).row);
            }}
          >
            <canvas ref={canvas} width={columns} height={rows} className="size-full [image-rendering:pixelated]" />
            {rows > 1 && <Frame bounds={{ left: 0, top: selectedRow / rows, width: 1, height: 1 / rows }} />}
            {current !== null && (
              <Frame bounds={{ left: current.column / columns, top: current.row / rows, width: 1 / columns, height: 1 / rows }} />
            )}
          </div>
          <div aria-hidden className="relative col-start-2 mt-1 h-4 overflow-hidden">
            <span className="absolute left-0">step {stepsText(map.columns[0])}</span>
            {columns > 1 && <span className="absolute right-0">{stepsText(map.columns[columns - 1])}</span>}
          </div>
        </div>
      )}
      <figcaption className="mt-1 flex min-h-5 flex-wrap items-center justify-between gap-x-4 gap-y-1 text-small text-soft tabular-nums">
        <span>{current === null ? summaryText() : cellText(current)}</span>
        <HeatMapLegend map={map} text={text} />
      </figcaption>
      {children}
    </figure>
  );

  function onKey(event: KeyboardEvent): void {
    const move = MOVE_BY_KEY[event.key];
    const from = current ?? { row: selectedRow, column: columns - 1 };
    if (move !== undefined) {
      setCell({ row: clamp(from.row + move[0], rows), column: clamp(from.column + move[1], columns) });
    } else if (event.key === "Enter" || event.key === " ") {
      onSelectRow(from.row);
    } else return;
    event.preventDefault();
  }

  function cellUnder(event: MouseEvent<HTMLElement>): Cell {
    const box = event.currentTarget.getBoundingClientRect();
    return {
      row: clamp(Math.floor(((event.clientY - box.top) / box.height) * rows), rows),
      column: clamp(Math.floor(((event.clientX - box.left) / box.width) * columns), columns),
    };
  }

  function cellText({ row, column }: Cell): string {
    const value = map.cells[row]?.[column];
    const valueText = value === null || value === undefined ? "not measured" : text(value);
    return `${rowName} ${map.labels[row] ?? ""}, step ${stepsText(map.columns[column])}: ${valueText}`;
  }

  function summaryText(): string {
    const newest = map.cells.map((row) => row[columns - 1] ?? null);
    const maxTicks = newest.reduce<number | null>((best, value) => (value === null || (best !== null && best >= value) ? best : value), null);
    if (maxTicks === null) return "not measured in the last step";
    return `step ${stepsText(map.columns[columns - 1])}: largest ${text(maxTicks)} in ${rowName} ${map.labels[newest.indexOf(maxTicks)] ?? ""}`;
  }
}

interface FrameBounds {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Outlines a cell or row with a dark and a light line, so that one is visible on any colour. */
function Frame({ bounds }: { bounds: FrameBounds }) {
  const style = Object.fromEntries(Object.entries(bounds).map(([side, share]) => [side, `${share * 100}%`]));
  return <div aria-hidden className="pointer-events-none absolute border border-text outline outline-surface" style={style} />;
}

/** Draws one pixel per cell, which the browser scales up. Cells without a value stay transparent. */
function paint(canvas: HTMLCanvasElement, map: HeatMapData): void {
  const context = canvas.getContext("2d");
  if (context === null || map.columns.length === 0) return;
  const image = context.createImageData(map.columns.length, map.labels.length);
  map.cells.flat().forEach((value, index) => {
    if (value !== null) image.data.set([...viridis(shadeOf(value, map)), 255], 4 * index);
  });
  context.putImageData(image, 0, 0);
}

/** The rows to label when there is room for `maxTicks`. */
function ticks(rows: number, maxTicks: number): number[] {
  const every = [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 100].find((value) => rows / value <= maxTicks) ?? rows;
  return Array.from({ length: Math.ceil(rows / every) }, (_, index) => index * every);
}

function clamp(index: number, length: number): number {
  return Math.min(length - 1, Math.max(0, index));
}

function stepsText(column: HeatColumn | undefined): string {
  if (column === undefined) return "–";
  return column.from === column.to ? count(column.to) : `${count(column.from)}–${count(column.to)}`;
}

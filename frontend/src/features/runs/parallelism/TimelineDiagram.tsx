import type { RunPlan } from "@/api/types";

type Action = RunPlan["timeline"][number][number];

const ROW_PX = 22;
const GAP_PX = 4;
const LABEL_PX = 52;
const WIDTH_PX = 800;
/** Minimum width of an action. Narrower ones cannot be told apart, so the diagram grows and scrolls instead. */
const MIN_CELL_PX = 7;
const MIN_LABEL_PX = 15;

export const ACTION_LABELS = { F: "forward", B: "backward", I: "backward: gradient of the input", W: "backward: gradient of the weights" } as const;
const ACTION_COLOURS = { F: 1, B: 2, I: 2, W: 3 } as const;

/** The pipeline schedule: one row per pipeline rank, time to the right, gaps where a rank is idle. */
export function TimelineDiagram({ plan }: { plan: RunPlan }) {
  const rows = plan.timeline;
  const end = Math.max(...rows.map((row) => row[row.length - 1]?.end ?? 0));
  const shortest = Math.min(...rows.flat().map((one) => one.end - one.start).filter((time) => time > 0));
  const scale = Math.max((WIDTH_PX - LABEL_PX) / end, MIN_CELL_PX / shortest);
  const [width, height] = [LABEL_PX + end * scale, rows.length * (ROW_PX + GAP_PX)];
  const kinds = (["F", "B", "I", "W"] as const).filter((kind) => rows.some((row) => row.some((one) => one.kind === kind)));
  return (
    <figure className="flex min-w-0 flex-col gap-2">
      <div role="region" aria-label="Pipeline timeline" tabIndex={0} className="overflow-x-auto">
        <svg width={width} height={height} role="img" aria-label={`Timeline of ${rows.length} pipeline ranks`} className="block">
          {rows.map((row, rank) => (
            <g key={rank} transform={`translate(0 ${rank * (ROW_PX + GAP_PX)})`}>
              <text x={0} y={ROW_PX - 7} className="fill-soft text-small">
                rank {rank}
              </text>
              <rect x={LABEL_PX} width={end * scale} height={ROW_PX} className="fill-raised" />
              {row.map((one) => (
                <Cell key={`${one.kind}${one.stage}-${one.micro_batch}`} one={one} scale={scale} chunk={chunkOf(plan, one)} />
              ))}
            </g>
          ))}
        </svg>
      </div>
      <figcaption className="flex flex-wrap gap-x-4 gap-y-1 text-small text-soft tabular-nums">
        {kinds.map((kind) => (
          <span key={kind} className="flex items-center gap-1.5">
            <span aria-hidden className="size-2.5" style={{ background: colour(kind) }} />
            {ACTION_LABELS[kind]}
          </span>
        ))}
        <span className="flex items-center gap-1.5">
          <span aria-hidden className="size-2.5 border bg-raised" />
          idle
        </span>
        {plan.stages_per_rank > 1 && <span>a line under a block: the rank&apos;s later stage</span>}
      </figcaption>
    </figure>
  );
}

function Cell({ one, scale, chunk }: { one: Action; scale: number; chunk: number }) {
  const [x, width] = [LABEL_PX + one.start * scale, (one.end - one.start) * scale];
  return (
    <g>
      <title>{`${ACTION_LABELS[one.kind]}, stage ${one.stage}, micro batch ${one.micro_batch}`}</title>
      <rect x={x + 0.5} width={Math.max(0, width - 1)} height={ROW_PX} style={{ fill: colour(one.kind) }} />
      {chunk > 0 && <rect x={x + 0.5} y={ROW_PX - 3} width={Math.max(0, width - 1)} height={3} className="fill-text" />}
      {width >= MIN_LABEL_PX && (
        <text x={x + width / 2} y={ROW_PX - 7} textAnchor="middle" className="fill-on-accent text-small">
          {one.micro_batch}
        </text>
      )}
    </g>
  );
}

/** The index of the stage among the rank's stages. */
function chunkOf({ stages }: RunPlan, { stage }: Action): number {
  const rank = stages[stage]?.rank;
  return stages.slice(0, stage).filter((stage) => stage.rank === rank).length;
}

function colour(kind: Action["kind"]): string {
  return `var(--color-series-${ACTION_COLOURS[kind]})`;
}

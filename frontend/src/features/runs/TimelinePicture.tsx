import type { RunPlan } from "@/api/types";

type Action = RunPlan["timeline"][number][number];

const ROW = 22;
const GAP = 4;
const LABEL = 52;
const WIDTH = 800;
/** Pixels of the shortest action: what is narrower cannot be told apart, so the picture grows and scrolls instead. */
const NARROWEST = 7;
const ROOM_FOR_NUMBER = 15;

export const NAMES = { F: "forward", B: "backward", I: "backward: gradient of the input", W: "backward: gradient of the weights" } as const;
const COLOURS = { F: 1, B: 2, I: 2, W: 3 } as const;

/** Who works when: a row for each pipeline rank, time to the right, gaps where a rank waits. */
export function TimelinePicture({ plan }: { plan: RunPlan }) {
  const rows = plan.timeline;
  const end = Math.max(...rows.map((row) => row[row.length - 1]?.end ?? 0));
  const shortest = Math.min(...rows.flat().map((one) => one.end - one.start).filter((time) => time > 0));
  const scale = Math.max((WIDTH - LABEL) / end, NARROWEST / shortest);
  const [width, height] = [LABEL + end * scale, rows.length * (ROW + GAP)];
  const kinds = (["F", "B", "I", "W"] as const).filter((kind) => rows.some((row) => row.some((one) => one.kind === kind)));
  return (
    <figure className="flex min-w-0 flex-col gap-2">
      <div role="region" aria-label="The pipeline's work in time" tabIndex={0} className="overflow-x-auto">
        <svg width={width} height={height} role="img" aria-label={`Timeline of ${rows.length} pipeline ranks`} className="block">
          {rows.map((row, rank) => (
            <g key={rank} transform={`translate(0 ${rank * (ROW + GAP)})`}>
              <text x={0} y={ROW - 7} className="fill-soft text-small">
                rank {rank}
              </text>
              <rect x={LABEL} width={end * scale} height={ROW} className="fill-raised" />
              {row.map((one) => (
                <Cell key={`${one.kind}${one.stage}-${one.micro_batch}`} one={one} scale={scale} chunk={chunkOf(plan, one)} />
              ))}
            </g>
          ))}
        </svg>
      </div>
      <figcaption className="flex flex-wrap gap-x-4 gap-y-1 text-small text-soft">
        {kinds.map((kind) => (
          <span key={kind} className="flex items-center gap-1.5">
            <span aria-hidden className="size-2.5" style={{ background: colour(kind) }} />
            {NAMES[kind]}
          </span>
        ))}
        <span className="flex items-center gap-1.5">
          <span aria-hidden className="size-2.5 border bg-raised" />
          waits
        </span>
        {plan.stages_per_rank > 1 && <span>a line under a block: the rank&apos;s later stage</span>}
      </figcaption>
    </figure>
  );
}

function Cell({ one, scale, chunk }: { one: Action; scale: number; chunk: number }) {
  const [x, width] = [LABEL + one.start * scale, (one.end - one.start) * scale];
  return (
    <g>
      <title>{`${NAMES[one.kind]}, stage ${one.stage}, micro batch ${one.micro_batch}`}</title>
      <rect x={x + 0.5} width={Math.max(0, width - 1)} height={ROW} style={{ fill: colour(one.kind) }} />
      {chunk > 0 && <rect x={x + 0.5} y={ROW - 3} width={Math.max(0, width - 1)} height={3} className="fill-text" />}
      {width >= ROOM_FOR_NUMBER && (
        <text x={x + width / 2} y={ROW - 7} textAnchor="middle" className="fill-on-accent text-small">
          {one.micro_batch}
        </text>
      )}
    </g>
  );
}

/** Which of the rank's stages, from 0. */
function chunkOf({ stages }: RunPlan, { stage }: Action): number {
  const rank = stages[stage]?.rank;
  return stages.slice(0, stage).filter((one) => one.rank === rank).length;
}

function colour(kind: Action["kind"]): string {
  return `var(--color-series-${COLOURS[kind]})`;
}

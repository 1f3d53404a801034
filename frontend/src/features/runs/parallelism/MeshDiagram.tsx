import type { RunPlan } from "@/api/types";
import { plural } from "@/lib/format";

const CELL_PX = 14;
const MAX_COLUMNS = 64;

/** Every rank as a small square: one row per pipeline rank, grouped by data rank, with tensor ranks side by side. */
export function MeshDiagram({ plan }: { plan: RunPlan }) {
  return (
    <figure className="flex min-w-0 flex-col gap-2">
      <figcaption className="text-small text-soft">Ranks: one row per pipeline rank, one group per data rank, one square per tensor rank</figcaption>
      <ul className="flex flex-col gap-2">
        {Array.from({ length: plan.pipeline }, (_, rank) => (
          <li key={rank} className="flex flex-col gap-1">
            <span className="text-small">{rankText(plan, rank)}</span>
            <Squares groups={Math.min(plan.data, Math.ceil(MAX_COLUMNS / plan.tensor))} tensor={plan.tensor} rank={rank} />
          </li>
        ))}
      </ul>
      {plan.data * plan.tensor > MAX_COLUMNS && <p className="text-small text-soft">Only the first of {plan.data} data ranks are shown.</p>}
    </figure>
  );
}

function Squares({ groups, tensor, rank }: { groups: number; tensor: number; rank: number }) {
  return (
    <span aria-hidden className="flex flex-wrap gap-1.5">
      {Array.from({ length: groups }, (_, group) => (
        <span key={group} className="flex flex-wrap gap-px">
          {Array.from({ length: tensor }, (_, part) => (
            <span key={part} style={{ width: CELL_PX, height: CELL_PX, background: `var(--color-series-${(rank % 8) + 1})` }} />
          ))}
        </span>
      ))}
    </span>
  );
}

/** `pipeline rank 0: layers 0–2, 6–8, embedding` */
function rankText({ stages, pipeline }: RunPlan, rank: number): string {
  const own = stages.filter((stage) => stage.rank === rank);
  const layers = own.map(({ first_layer: first, layers: number }) => (number === 1 ? String(first) : `${first}–${first + number - 1}`));
  const extras = [own.some(({ embedding }) => embedding) ? "embedding" : "", own.some(({ loss }) => loss) ? "loss" : ""].filter(Boolean);
  const number = own.reduce((sum, stage) => sum + stage.layers, 0);
  const text = pipeline === 1 ? plural(number, "layer") : `pipeline rank ${rank}: ${number === 1 ? "layer" : "layers"} ${layers.join(", ")}`;
  return [text, ...extras].join(", ");
}

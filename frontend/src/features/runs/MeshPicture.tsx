import type { RunPlan } from "@/api/types";
import { plural } from "@/lib/format";

const SIDE = 14;
const MOST_ACROSS = 64;

/** Every rank as a small square: a row for each pipeline rank, in it the data ranks, and the tensor ranks of each side by side. */
export function MeshPicture({ plan }: { plan: RunPlan }) {
  return (
    <figure className="flex min-w-0 flex-col gap-2">
      <figcaption className="text-small text-soft">Ranks: a row for each pipeline rank, a group for each data rank, a square for each tensor rank</figcaption>
      <ul className="flex flex-col gap-2">
        {Array.from({ length: plan.pipeline }, (_, rank) => (
          <li key={rank} className="flex flex-col gap-1">
            <span className="text-small">{holds(plan, rank)}</span>
            <Squares groups={Math.min(plan.data, Math.ceil(MOST_ACROSS / plan.tensor))} tensor={plan.tensor} rank={rank} />
          </li>
        ))}
      </ul>
      {plan.data * plan.tensor > MOST_ACROSS && <p className="text-small text-soft">The first data ranks of {plan.data} are drawn.</p>}
    </figure>
  );
}

function Squares({ groups, tensor, rank }: { groups: number; tensor: number; rank: number }) {
  return (
    <span aria-hidden className="flex flex-wrap gap-1.5">
      {Array.from({ length: groups }, (_, group) => (
        <span key={group} className="flex flex-wrap gap-px">
          {Array.from({ length: tensor }, (_, part) => (
            <span key={part} style={{ width: SIDE, height: SIDE, background: `var(--color-series-${(rank % 8) + 1})` }} />
          ))}
        </span>
      ))}
    </span>
  );
}

/** `pipeline rank 0: layers 0–2, 6–8, embedding` */
function holds({ stages, pipeline }: RunPlan, rank: number): string {
  const own = stages.filter((stage) => stage.rank === rank);
  const layers = own.map(({ first_layer: first, layers: number }) => (number === 1 ? String(first) : `${first}–${first + number - 1}`));
  const ends = [own.some(({ embedding }) => embedding) ? "embedding" : "", own.some(({ loss }) => loss) ? "loss" : ""].filter(Boolean);
  const number = own.reduce((sum, stage) => sum + stage.layers, 0);
  const text = pipeline === 1 ? plural(number, "layer") : `pipeline rank ${rank}: ${number === 1 ? "layer" : "layers"} ${layers.join(", ")}`;
  return [text, ...ends].join(", ");
}

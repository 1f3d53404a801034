import { STEP_PARTS } from "@/features/metrics/timing/rankTimes";
import { count, shortTime } from "@/lib/format";
import { recentValues, type Columns } from "@/lib/charts/series";

const RECENT_STEPS = 20;

/** Where the time of a step goes: the mean of each part over the last steps. */
export function StepTimeBar({ columns }: { columns: Columns }) {
  const recent = STEP_PARTS.map((name) => recentValues(columns[`${name}_seconds`] ?? { steps: [], values: [] }, RECENT_STEPS));
  // Each column of a long run was downsampled on its own.
  const steps = Math.min(...recent.filter(({ length }) => length > 0).map(({ length }) => length));
  const parts = STEP_PARTS.map((name, index) => ({
    name,
    color: `var(--color-series-${index + 1})`,
    seconds: mean(recent[index]?.slice(-steps) ?? []),
  }));
  const total = parts.reduce((sum, { seconds }) => sum + seconds, 0);
  return (
    <section className="panel p-3">
      <h2 className="font-medium">{total === 0 ? "step time breakdown" : `step time breakdown, ${shortTime(total)}`}</h2>
      {total === 0 ? (
        <p className="mt-3 text-small text-soft">This run reported no timings.</p>
      ) : (
        <>
          <div aria-hidden className="mt-4 mb-3 flex h-5 gap-px">
            {parts.map(({ name, color, seconds }) => (
              <div key={name} style={{ background: color, width: `${(seconds / total) * 100}%` }} />
            ))}
          </div>
          <ul className="flex flex-wrap gap-x-4 gap-y-2 text-small text-soft">
            {parts.map(({ name, color, seconds }) => (
              <li key={name} className="flex items-center gap-1.5 tabular-nums">
                <span aria-hidden className="size-2" style={{ background: color }} />
                {name} {shortTime(seconds)}
              </li>
            ))}
          </ul>
          <p className="mt-2 text-small text-soft">{steps === 1 ? "The last step." : `Mean of the last ${count(steps)} steps.`}</p>
        </>
      )}
    </section>
  );
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

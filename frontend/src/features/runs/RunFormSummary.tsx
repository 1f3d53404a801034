import type { Problem, Verdicts } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { fieldId } from "@/features/runs/fieldId";
import { count, plural, short } from "@/lib/format";

interface Props {
  verdicts: Verdicts | undefined;
  problems: readonly Problem[];
  /** Whether the fields are on the page, so that a problem can lead to its own. */
  linked: boolean;
  notJson: boolean;
  busy: boolean;
  error: Error | null;
}

/** What the run would be, what is wrong with it, and the button that starts it. */
export function RunFormSummary({ verdicts, problems, linked, notJson, busy, error }: Props) {
  return (
    <aside aria-label="Summary" className="sticky top-4 flex flex-col gap-3 max-desk:static">
      <dl className="panel divide-y">
        {facts(verdicts).map(([name, value]) => (
          <div key={name} className="flex justify-between gap-4 px-4 py-1.5">
            <dt className="text-soft">{name}</dt>
            <dd className="text-right">{value}</dd>
          </div>
        ))}
      </dl>
      {notJson && <p className="panel border-bad px-4 py-2">This is not JSON yet. Look for a missing comma or quote.</p>}
      {problems.length > 0 && !notJson && (
        <div role="alert" className="panel border-bad px-4 py-2">
          <p className="font-medium">{plural(problems.length, "thing")} to change</p>
          <ul className="mt-1 flex flex-col gap-1">
            {problems.map(({ field, message }) => (
              <li key={`${field} ${message}`} className="text-small break-words">
                {linked && field !== "" ? (
                  <a
                    href={`#${fieldId(field)}`}
                    className="text-accent underline underline-offset-2"
                    onClick={(event) => {
                      event.preventDefault();
                      document.getElementById(fieldId(field))?.focus();
                    }}
                  >
                    {field}
                  </a>
                ) : (
                  <span className="font-medium">{field}</span>
                )}{" "}
                {message}
              </li>
            ))}
          </ul>
        </div>
      )}
      {error !== null && problems.length === 0 && <ErrorNote error={error} />}
      <Button type="submit" look="primary" disabled={busy || notJson} className="w-full">
        Start run
      </Button>
    </aside>
  );
}

function facts(verdicts: Verdicts | undefined): [string, string][] {
  const spec = verdicts?.spec;
  const parameters = verdicts?.parameters;
  const { global_sequences: sequences, sequence_tokens: length } = spec?.batch ?? {};
  const step = sequences === undefined || length === undefined ? undefined : sequences * length;
  const steps = spec?.schedule.steps;
  const { nodes = 1, slots_per_node: slots } = spec?.resources ?? {};
  return [
    ["parameters", parameters === null || parameters === undefined ? "–" : short(parameters)],
    ["tokens per step", step === undefined ? "–" : count(step)],
    ["tokens in all", step === undefined || steps === undefined ? "–" : short(step * steps)],
    ["slots", slots === undefined ? "–" : count(nodes * slots)],
  ];
}

import type { ReactNode } from "react";
import type { Problem } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { fieldId } from "@/features/runs/fieldId";
import { goToLine } from "@/features/runs/YamlEditor";
import { plural } from "@/lib/format";
import type { Fault } from "@/lib/specYaml";

interface Props {
  problems: readonly Problem[];
  /** Where the text cannot be read. */
  faults: readonly Fault[];
  /** In the text, the line of a field; null where the fields themselves are on the page. */
  lineOf: ((field: string) => number) | null;
  verb: string;
  busy: boolean;
  error: Error | null;
  /** What the run would come to. */
  children: ReactNode;
}

/** What the run would be, what is wrong with it, and the button that starts it. */
export function RunFormSummary({ problems, faults, lineOf, verb, busy, error, children }: Props) {
  const wrong = faults.length > 0 ? faults.length : problems.length;
  return (
    <aside aria-label="Summary" className="sticky top-4 flex flex-col gap-3 max-desk:static">
      {children}
      {wrong > 0 && (
        <div role="alert" className="panel border-bad px-4 py-2">
          <p className="font-medium">{plural(wrong, "thing")} to change</p>
          <ul className="mt-1 flex flex-col gap-1">
            {faults.map(({ line, message }) => (
              <li key={`${line} ${message}`} className="text-small break-words">
                <LineLink line={line} /> {message}
              </li>
            ))}
            {faults.length === 0 &&
              problems.map(({ field, message }) => (
                <li key={`${field} ${message}`} className="text-small break-words">
                  {lineOf === null ? <FieldLink field={field} /> : <LineLink line={lineOf(field)} field={field} />} {message}
                </li>
              ))}
          </ul>
        </div>
      )}
      {error !== null && problems.length === 0 && <ErrorNote error={error} />}
      <Button type="submit" look="primary" disabled={busy || faults.length > 0} className="w-full">
        {verb}
      </Button>
    </aside>
  );
}

const LINK = "text-accent underline underline-offset-2";

function LineLink({ line, field = "" }: { line: number; field?: string }) {
  return (
    <button
      type="button"
      className={LINK}
      onClick={() => {
        goToLine(line);
      }}
    >
      line {line}
      {field !== "" && `, ${field}`}
    </button>
  );
}

function FieldLink({ field }: { field: string }) {
  if (field === "") return null;
  return (
    <a
      href={`#${fieldId(field)}`}
      className={LINK}
      onClick={(event) => {
        event.preventDefault();
        document.getElementById(fieldId(field))?.focus();
      }}
    >
      {field}
    </a>
  );
}

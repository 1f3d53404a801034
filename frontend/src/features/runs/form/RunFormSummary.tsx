import type { ReactNode } from "react";
import type { Problem } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { fieldId } from "@/features/runs/form/fieldId";
import { goToLine } from "@/features/runs/form/YamlEditor";
import { plural } from "@/lib/format";
import type { YamlError } from "@/features/runs/spec/specYaml";

interface Props {
  problems: readonly Problem[];
  /** Where the text cannot be parsed. */
  syntaxErrors: readonly YamlError[];
  /** The line of a field in the text; null if the fields are on the page. */
  lineOf: ((field: string) => number) | null;
  submitLabel: string;
  busy: boolean;
  error: Error | null;
  /** The run's estimated cost. */
  children: ReactNode;
}

/** The estimate, the problems and the submit button. */
export function RunFormSummary({ problems, syntaxErrors, lineOf, submitLabel, busy, error, children }: Props) {
  const problemCount = syntaxErrors.length > 0 ? syntaxErrors.length : problems.length;
  return (
    <aside aria-label="Summary" className="sticky top-4 flex flex-col gap-3 max-desk:static">
      {children}
      {problemCount > 0 && (
        <div role="alert" className="panel border-bad px-4 py-2">
          <p className="font-medium">{plural(problemCount, "problem")}</p>
          <ul className="mt-1 flex flex-col gap-1">
            {syntaxErrors.map(({ line, message }) => (
              <li key={`${line} ${message}`} className="text-small break-words">
                <LineLink line={line} /> {message}
              </li>
            ))}
            {syntaxErrors.length === 0 &&
              problems.map(({ field, message }) => (
                <li key={`${field} ${message}`} className="text-small break-words">
                  {lineOf === null ? <FieldLink field={field} /> : <LineLink line={lineOf(field)} field={field} />} {message}
                </li>
              ))}
          </ul>
        </div>
      )}
      {error !== null && problems.length === 0 && <ErrorNote error={error} />}
      <Button type="submit" variant="primary" disabled={busy || syntaxErrors.length > 0} className="w-full">
        {submitLabel}
      </Button>
    </aside>
  );
}

const LINK_CLASS = "text-accent underline underline-offset-2";

function LineLink({ line, field = "" }: { line: number; field?: string }) {
  return (
    <button
      type="button"
      className={LINK_CLASS}
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
      className={LINK_CLASS}
      onClick={(event) => {
        event.preventDefault();
        document.getElementById(fieldId(field))?.focus();
      }}
    >
      {field}
    </a>
  );
}

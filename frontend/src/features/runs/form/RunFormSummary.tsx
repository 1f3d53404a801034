import { Check, CircleAlert, CircleDashed, TriangleAlert, type LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import type { Problem } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { goToField } from "@/features/runs/form/fieldId";
import { FieldLink } from "@/features/runs/form/FieldLink";
import type { StartReadiness } from "@/features/runs/form/startReadiness";
import { goToLine } from "@/features/runs/form/YamlEditor";
import type { YamlError } from "@/features/runs/spec/specYaml";
import { plural } from "@/lib/format";

interface Props {
  problems: readonly Problem[];
  /** Where the text cannot be parsed. */
  syntaxErrors: readonly YamlError[];
  /** Label of a link to a field. */
  labelOf: (field: string) => string;
  /** The line of a field in the text; null if the fields are on the page. */
  lineOf: ((field: string) => number) | null;
  verdict: StartReadiness;
  submitLabel: string;
  busy: boolean;
  error: Error | null;
  /** The run's estimated cost. */
  children: ReactNode;
}

/**
 * The problems, the estimate, and the verdict with the submit button. They stay visible: as a column next to the form,
 * and on smaller screens as a bar at the bottom, below which only the problems and the estimate scroll.
 */
export function RunFormSummary({ problems, syntaxErrors, labelOf, lineOf, verdict, submitLabel, busy, error, children }: Props) {
  const problemCount = syntaxErrors.length > 0 ? syntaxErrors.length : problems.length;
  return (
    <aside
      aria-label="Summary"
      className="sticky top-4 flex max-h-[calc(100dvh-2rem)] flex-col gap-3 overflow-y-auto max-desk:contents"
    >
      {problemCount > 0 && (
        <div role="alert" className="panel border-bad px-4 py-2">
          <p className="font-medium">{plural(problemCount, "problem")}</p>
          <ul className="mt-1 flex flex-col gap-2">
            {syntaxErrors.map(({ line, message }) => (
              <li key={`${line} ${message}`} className="text-small break-words">
                <LineLink line={line} />
                <span className="block">{message}</span>
              </li>
            ))}
            {syntaxErrors.length === 0 &&
              problems.map(({ field, message }) => (
                <li key={`${field} ${message}`} className="text-small break-words">
                  {lineOf === null ? <FieldLink field={field} label={labelOf(field)} /> : <LineLink line={lineOf(field)} field={field} />}
                  <span className="block">{message}</span>
                </li>
              ))}
          </ul>
        </div>
      )}
      {children}
      <StartBar error={problems.length === 0 ? error : null} verdict={verdict} submitLabel={submitLabel} disabled={busy || syntaxErrors.length > 0} onFirstProblem={goToFirstProblem()} />
    </aside>
  );

  /** Undefined if the first problem is at no field. */
  function goToFirstProblem(): (() => void) | undefined {
    const [error] = syntaxErrors;
    if (error !== undefined) return () => { goToLine(error.line); };
    const field = problems[0]?.field ?? "";
    if (field === "") return undefined;
    return () => {
      if (lineOf === null) goToField(field);
      else goToLine(lineOf(field));
    };
  }
}

const BAR_CLASS =
  "max-desk:sticky max-desk:bottom-0 max-desk:flex-row max-desk:flex-wrap max-desk:items-center max-desk:z-5 max-desk:-mx-6 max-desk:border-t max-desk:bg-bg max-desk:px-6 max-desk:py-3 max-tablet:bottom-16 max-tablet:-mx-4 max-tablet:px-4";

const TONES: Record<StartReadiness["tone"], { Icon: LucideIcon; className: string }> = {
  good: { Icon: Check, className: "text-good" },
  warn: { Icon: TriangleAlert, className: "text-warn" },
  bad: { Icon: CircleAlert, className: "text-bad" },
  idle: { Icon: CircleDashed, className: "text-idle" },
};

interface StartBarProps {
  /** Why the run was refused, if not for a problem of a field. */
  error: Error | null;
  verdict: StartReadiness;
  submitLabel: string;
  disabled: boolean;
  onFirstProblem: (() => void) | undefined;
}

function StartBar({ error, verdict, submitLabel, disabled, onFirstProblem }: StartBarProps) {
  const { tone, title, detail } = verdict;
  const { Icon, className } = TONES[tone];
  return (
    <div className={`sticky bottom-0 flex flex-col gap-2 bg-bg pt-1 ${BAR_CLASS}`}>
      {error !== null && (
        <div className="w-full">
          <ErrorNote error={error} />
        </div>
      )}
      <div role="status" aria-label="Verdict" className="flex min-w-0 flex-1 items-start gap-2">
        <Icon aria-hidden size={16} className={`mt-0.5 shrink-0 ${className}`} />
        <p className="min-w-0">
          <span className={`font-medium ${className}`}>{title}</span>
          <span className="block text-small text-soft">
            {tone === "bad" && onFirstProblem !== undefined ? (
              <button type="button" className={`text-left ${LINK_CLASS}`} onClick={onFirstProblem}>
                {detail}
              </button>
            ) : (
              detail
            )}
          </span>
        </p>
      </div>
      <Button type="submit" variant={tone === "bad" ? "plain" : "primary"} disabled={disabled} className="w-full max-desk:w-auto">
        {submitLabel}
      </Button>
    </div>
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

import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useParams, useRouteContext } from "@tanstack/react-router";
import { Check } from "lucide-react";
import { useState, type ReactNode } from "react";
import { Button } from "@/components/Button";
import { Copyable } from "@/components/Copyable";
import { datasetsQuery } from "@/features/datasets/queries";

interface Props {
  hasRuns: boolean;
  /** Whether a run succeeded. */
  hasFinished: boolean;
}

const COMMAND = "trainwright datasets upload my-data my-data.jsonl";
const LINK_CLASS = "text-accent underline underline-offset-2";

/** The steps to a trained model, with completed ones ticked. Hidden after the first finished run, or when dismissed. */
export function FirstSteps({ hasRuns, hasFinished }: Props) {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const key = `trainwright.first-steps.${me.id}.${team}`;
  const [isDismissed, setDismissed] = useState(() => localStorage.getItem(key) !== null);
  const isShown = !hasFinished && !(isDismissed && hasRuns);
  const { data } = useInfiniteQuery({ ...datasetsQuery(team), enabled: isShown });
  if (!isShown) return null;
  const hasData = hasRuns || (data?.pages[0]?.items.length ?? 0) > 0;
  return (
    <section aria-label="First steps" className="panel flex flex-col gap-4 p-4">
      <div className="flex flex-wrap items-center justify-between gap-3">
        <h2 className="font-semibold">{hasRuns ? "First steps" : "No runs yet."}</h2>
        {hasRuns && (
          <Button
            variant="quiet"
            onClick={() => {
              localStorage.setItem(key, "dismissed");
              setDismissed(true);
            }}
          >
            Dismiss
          </Button>
        )}
      </div>
      <ol className="grid grid-cols-3 gap-4 max-desk:grid-cols-1">
        <Step number={1} title="Upload data" isDone={hasData}>
          <Link to="/$team/datasets" params={{ team }} className={LINK_CLASS}>
            Upload a dataset
          </Link>
          ; a plain text file is enough.
        </Step>
        <Step number={2} title="Start a run" isDone={hasRuns}>
          {hasData ? (
            <Link to="/$team/runs/new" params={{ team }} className={LINK_CLASS}>
              The form
            </Link>
          ) : (
            "The form"
          )}{" "}
          starts with a small model, and shows whether it fits and how long it takes.
        </Step>
        <Step number={3} title="Use the weights" isDone={false}>
          Watch the loss fall here, then download the weights from the run's checkpoints.
        </Step>
      </ol>
      {!hasData && (
        <p className="min-w-0 text-small text-soft">
          Or upload from a terminal: <Copyable text={COMMAND} />
        </p>
      )}
    </section>
  );
}

function Step({ number, title, isDone, children }: { number: number; title: string; isDone: boolean; children: ReactNode }) {
  return (
    <li className="flex gap-3">
      <span aria-hidden className={`mt-0.5 flex size-5 shrink-0 items-center justify-center rounded-pill border text-small ${isDone ? "border-good text-good" : "border-control"}`}>
        {isDone ? <Check size={12} /> : number}
      </span>
      <div className="min-w-0">
        <h3 className="font-medium">
          {title}
          {isDone && <span className="sr-only"> (done)</span>}
        </h3>
        <p className="text-small text-soft">{children}</p>
      </div>
    </li>
  );
}

import { Link, useParams } from "@tanstack/react-router";
import { Copyable } from "@/components/Copyable";
import { EmptyState } from "@/components/EmptyState";

const COMMAND = "trainwright datasets upload letters letters.jsonl";

/** Shown to new teams: the first steps in order. */
export function GettingStarted() {
  const { team } = useParams({ from: "/$team" });
  return (
    <EmptyState title="No runs yet.">
      <ol className="flex list-decimal flex-col gap-2 pl-5">
        <li>
          <Link to="/$team/datasets" params={{ team }} className="text-accent underline underline-offset-2">
            Upload a dataset
          </Link>
          ; a plain text file is enough.
        </li>
        <li>Start a run from it. The form starts with a small model and shows what it will cost.</li>
        <li>Watch its loss fall here, then download the weights.</li>
      </ol>
      <p className="max-w-full min-w-0">
        Or from a terminal: <Copyable text={COMMAND} />
      </p>
    </EmptyState>
  );
}

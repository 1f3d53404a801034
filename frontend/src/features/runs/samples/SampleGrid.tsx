import type { RunSamples } from "@/api/types";
import { pairsOf } from "@/features/runs/samples/sampleSteps";
import type { Column } from "@/lib/charts/series";
import { count } from "@/lib/format";

interface Props {
  /** One validation, or two to compare. */
  shown: readonly RunSamples[];
  losses: Column | undefined;
}

/** One panel per prompt, side by side, with its continuations at the shown validations. */
export function SampleGrid({ shown, losses }: Props) {
  const pairs = pairsOf(shown);
  return (
    <ul className={`grid gap-3 ${shown.length > 1 || pairs.length === 1 ? "grid-cols-1" : "grid-cols-2 max-desk:grid-cols-1"}`}>
      {pairs.map(({ prompt, texts }, index) => (
        <li key={index} className="panel min-w-0">
          <h2 className="sr-only">After {prompt}</h2>
          <div className={`grid divide-line ${shown.length > 1 ? "grid-cols-2 divide-x max-tablet:grid-cols-1 max-tablet:divide-x-0 max-tablet:divide-y" : ""}`}>
            {texts.map((text, at) => (
              <div key={at} className="min-w-0 px-4 py-3">
                {shown.length > 1 && <StepLine written={shown[at]} losses={losses} />}
                <p className="font-mono text-mono break-words whitespace-pre-wrap">
                  <span className="bg-raised font-medium">{prompt}</span>
                  {text}
                </p>
                {text === null && <p className="text-soft">This validation did not have this prompt.</p>}
                {text === "" && <p className="text-soft">The model ended the text immediately.</p>}
              </div>
            ))}
          </div>
        </li>
      ))}
    </ul>
  );
}

function StepLine({ written, losses }: { written: RunSamples | undefined; losses: Column | undefined }) {
  if (written === undefined) return null;
  const loss = losses?.values[losses.steps.indexOf(written.step)];
  return (
    <p className="mb-1 text-small text-soft tabular-nums">
      step {count(written.step)}
      {loss !== undefined && `, validation loss ${loss.toFixed(3)}`}
    </p>
  );
}

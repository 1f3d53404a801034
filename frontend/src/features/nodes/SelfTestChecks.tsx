import type { Node } from "@/api/types";
import { Collapsible } from "@/components/Collapsible";
import { StateIcon } from "@/components/StateIcon";
import { Time } from "@/components/Time";

/** The checks of the node's newest self-test, with what they measured. Empty if it has never run one. */
export function SelfTestChecks({ node: { self_test: test } }: { node: Node }) {
  if (!test) return null;
  return (
    <div className="-mx-4 mt-3">
      <Collapsible
        title="Self-test"
        summary={
          <>
            {test.passed ? "passed" : "failed"} <Time at={test.time} />
          </>
        }
      >
        <ul className="grid gap-1 text-small">
          {test.checks.map(({ name, passed, detail }) => (
            <li key={name} className="flex gap-2">
              <span className={`inline-flex h-5 items-center ${passed ? "text-good" : "text-bad"}`}>
                <StateIcon shape={passed ? "circle" : "cross"} />
                <span className="sr-only">{passed ? "passed: " : "failed: "}</span>
              </span>
              <span>
                {name} <span className="text-soft">{detail}</span>
              </span>
            </li>
          ))}
        </ul>
      </Collapsible>
    </div>
  );
}

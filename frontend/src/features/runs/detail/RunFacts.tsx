import { Link } from "@tanstack/react-router";
import { Fragment, type ReactNode } from "react";
import type { Run } from "@/api/types";
import { Time } from "@/components/Time";
import { count, plural } from "@/lib/format";
import { isFinal } from "@/lib/runs/runProgress";

interface Props {
  team: string;
  run: Run;
  /** Only site admins can see nodes. */
  canSeeNodes: boolean;
  /** A link to its data. */
  dataset: ReactNode;
}

/** What the run trains, on what, where and for whom, in one line. Of a run that has ended, where its last attempt was. */
export function RunFacts({ team, run, canSeeNodes, dataset }: Props) {
  const { data, model, precision, resources } = run.spec;
  const names = isFinal(run.state) ? run.attempt_nodes : run.nodes;
  const nodes = names.length || resources.nodes;
  const slots = plural(nodes * resources.slots_per_node, resources.device === "cuda" ? "GPU" : resources.device === "cpu" ? "CPU slot" : "slot");
  return (
    <dl className="-mt-2 mb-4 flex flex-wrap gap-x-6 gap-y-1 text-small max-tablet:gap-x-3 max-tablet:gap-y-0">
      <Fact name="data">
        {dataset}
        {data.version != null && <span className="text-soft"> version {count(data.version)}</span>}
      </Fact>
      <Fact name="model">
        {count(model.layers)} layers × {count(model.width)}
      </Fact>
      <Fact name="precision">{precision.kind === "fp8" && precision.fp8 != null ? `fp8 ${precision.fp8.level}` : precision.kind}</Fact>
      <Fact name="on">
        {slots}
        {names.length > 0 && (
          <span className="text-soft">
            {" of "}
            {names.map((name, index) => (
              <Fragment key={name}>
                {index > 0 && ", "}
                {canSeeNodes ? (
                  <Link to="/$team/nodes" params={{ team }} className="text-accent underline underline-offset-2">
                    {name}
                  </Link>
                ) : (
                  name
                )}
              </Fragment>
            ))}
          </span>
        )}
        {nodes < resources.nodes && (
          <span className="text-soft">
            {" "}
            ({nodes} of {plural(resources.nodes, "node")})
          </span>
        )}
      </Fact>
      <Fact name="by">
        {run.created_by ?? "a former member"}, <Time at={run.created} />
      </Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="flex min-w-0 gap-1.5">
      <dt className="text-soft">{name}</dt>
      <dd className="min-w-0 break-words">{children}</dd>
    </div>
  );
}

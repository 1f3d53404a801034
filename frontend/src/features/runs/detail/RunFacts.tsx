import type { ReactNode } from "react";
import type { Run } from "@/api/types";
import { Time } from "@/components/Time";
import { count, plural } from "@/lib/format";

/** What the run trains, on what, where and for whom, in one line. */
export function RunFacts({ run, dataset }: { run: Run; dataset: ReactNode }) {
  const { data, model, precision, resources } = run.spec;
  const nodes = run.nodes.length || resources.nodes;
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
        {run.nodes.length > 0 && <span className="text-soft"> of {run.nodes.join(", ")}</span>}
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

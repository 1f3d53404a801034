import { useRouteContext } from "@tanstack/react-router";
import { Boundary } from "@/components/Boundary";
import { TitleRow } from "@/components/TitleRow";
import { AddNode } from "@/features/nodes/AddNode";
import { NodeList } from "@/features/nodes/NodeList";
import { PlatformProblems } from "@/features/platform/PlatformProblems";

export function NodesPage() {
  const { me } = useRouteContext({ from: "/$team" });
  return (
    <>
      <TitleRow title="Nodes" />
      <PlatformProblems />
      <Boundary>
        <NodeList />
      </Boundary>
      {me.site_admin && (
        <section className="mt-10">
          <h2 className="mb-2 font-semibold">Add a node</h2>
          <AddNode />
        </section>
      )}
    </>
  );
}

import { useRouteContext } from "@tanstack/react-router";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { EmptyState } from "@/components/EmptyState";
import { TitleRow } from "@/components/TitleRow";
import { AddNode } from "@/features/nodes/AddNode";
import { NodeList } from "@/features/nodes/NodeList";
import { PlatformProblems } from "@/features/platform/PlatformProblems";

export function NodesPage() {
  const { me } = useRouteContext({ from: "/$team" });
  return (
    <>
      <TitleRow title="Nodes" />
      {me.site_admin ? (
        <>
          <PlatformProblems />
          <AsyncBoundary>
            <NodeList />
          </AsyncBoundary>
          <section className="mt-10">
            <h2 className="mb-2 font-semibold">Add a node</h2>
            <p className="mb-3 text-soft">Create a join token, then run the commands shown on the new machine.</p>
            <AddNode />
          </section>
        </>
      ) : (
        <EmptyState title="Only site admins can see nodes.">
          <p>A run's page names its node, and why a run waits for one. Home shows how many slots your team uses.</p>
        </EmptyState>
      )}
    </>
  );
}

import { Boundary } from "@/components/Boundary";
import { TitleRow } from "@/components/TitleRow";
import { NodeTable } from "@/features/nodes/NodeTable";

export function NodesPage() {
  return (
    <>
      <TitleRow title="Nodes" />
      <Boundary>
        <NodeTable />
      </Boundary>
    </>
  );
}

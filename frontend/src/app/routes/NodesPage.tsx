import { Boundary } from "@/components/Boundary";
import { TitleRow } from "@/components/TitleRow";
import { NodeList } from "@/features/nodes/NodeList";

export function NodesPage() {
  return (
    <>
      <TitleRow title="Nodes" />
      <Boundary>
        <NodeList />
      </Boundary>
    </>
  );
}

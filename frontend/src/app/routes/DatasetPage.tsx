import { useNavigate, useParams } from "@tanstack/react-router";
import { Boundary } from "@/components/Boundary";
import { DatasetDetail } from "@/features/datasets/detail/DatasetDetail";

export function DatasetPage() {
  const { team, datasetId } = useParams({ from: "/$team/datasets/$datasetId" });
  const navigate = useNavigate();
  return (
    <Boundary titled>
      <DatasetDetail
        key={datasetId}
        team={team}
        datasetId={datasetId}
        onDeleted={() => void navigate({ to: "/$team/datasets", params: { team } })}
      />
    </Boundary>
  );
}

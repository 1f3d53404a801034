import { useNavigate, useParams } from "@tanstack/react-router";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { DatasetDetail } from "@/features/datasets/detail/DatasetDetail";

export function DatasetPage() {
  const { team, datasetId } = useParams({ from: "/$team/datasets/$datasetId" });
  const navigate = useNavigate();
  return (
    <AsyncBoundary titled notFoundTitle="Dataset not found">
      <DatasetDetail
        key={datasetId}
        team={team}
        datasetId={datasetId}
        onDeleted={() => void navigate({ to: "/$team/datasets", params: { team } })}
      />
    </AsyncBoundary>
  );
}

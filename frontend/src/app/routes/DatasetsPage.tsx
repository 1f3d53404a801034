import { useNavigate, useParams } from "@tanstack/react-router";
import { Boundary } from "@/components/Boundary";
import { TitleRow } from "@/components/TitleRow";
import { DatasetTable } from "@/features/datasets/DatasetTable";
import { NewDataset } from "@/features/datasets/NewDataset";

export function DatasetsPage() {
  const { team } = useParams({ from: "/$team" });
  const navigate = useNavigate();
  return (
    <>
      <TitleRow title="Datasets" />
      <div className="mb-4">
        <NewDataset
          team={team}
          onUploaded={({ id }) => void navigate({ to: "/$team/datasets/$datasetId", params: { team, datasetId: id } })}
        />
      </div>
      <Boundary>
        <DatasetTable team={team} />
      </Boundary>
    </>
  );
}

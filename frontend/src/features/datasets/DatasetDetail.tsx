import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Button, buttonClass } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Copyable } from "@/components/Copyable";
import { TitleRow } from "@/components/TitleRow";
import { DropZone } from "@/features/datasets/DropZone";
import { datasetQuery, deleteDataset } from "@/features/datasets/queries";
import { UploadList } from "@/features/datasets/UploadList";
import { startUpload } from "@/features/datasets/uploads";
import { VersionPanel } from "@/features/datasets/VersionPanel";
import { bytes, plural } from "@/lib/format";

interface Props {
  team: string;
  datasetId: string;
  onDeleted: () => void;
}

export function DatasetDetail({ team, datasetId, onDeleted }: Props) {
  const { data: dataset } = useSuspenseQuery(datasetQuery(team, datasetId));
  const [asking, setAsking] = useState(false);
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => deleteDataset(team, datasetId),
    onSuccess: () => {
      onDeleted();
      void client.invalidateQueries({ queryKey: ["datasets", team] });
    },
  });
  const size = dataset.versions.reduce((sum, version) => sum + version.bytes, 0);

  function add(files: File[]): void {
    const name = files.map((file) => file.name).join(", ");
    const onDone = () => {
      void client.invalidateQueries({ queryKey: datasetQuery(team, datasetId).queryKey });
    };
    startUpload({ team, dataset: datasetId, name, files, onDone });
  }

  return (
    <>
      <TitleRow
        title={dataset.name}
        parent={
          <Link to="/$team/datasets" params={{ team }} className="hover:text-accent">
            Datasets
          </Link>
        }
        actions={
          <>
            <Button
              onClick={() => {
                remove.reset();
                setAsking(true);
              }}
            >
              Delete
            </Button>
            <Link to="/$team/runs/new" params={{ team }} search={{ dataset: datasetId }} className={buttonClass("primary")}>
              New run with it
            </Link>
          </>
        }
      >
        <span className="text-soft">
          <Copyable text={dataset.id} />
        </span>
      </TitleRow>
      <div className="flex flex-col gap-3">
        {dataset.versions.map((version) => (
          <VersionPanel key={version.number} team={team} dataset={datasetId} version={version} />
        ))}
        <div>
          <DropZone title="Drop files here to add a version" onFiles={add} />
          <UploadList team={team} dataset={datasetId} />
        </div>
      </div>
      {asking && (
        <ConfirmDialog
          title={`Delete ${dataset.name}?`}
          consequence={`This deletes its ${plural(dataset.versions.length, "version")} and frees ${bytes(size)}. It cannot be undone.`}
          verb="Delete dataset"
          keep="Keep it"
          busy={remove.isPending}
          error={remove.error}
          onConfirm={() => {
            remove.mutate();
          }}
          onClose={() => {
            setAsking(false);
          }}
        />
      )}
    </>
  );
}

import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Button, buttonClass } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Copyable } from "@/components/Copyable";
import { ForEditors } from "@/components/ForEditors";
import { ShortId } from "@/components/ShortId";
import { TitleRow } from "@/components/TitleRow";
import { NewVersion } from "@/features/datasets/create/NewVersion";
import { datasetQuery, deleteDataset } from "@/features/datasets/queries";
import { VersionPanel } from "@/features/datasets/detail/VersionPanel";
import { bytes, plural } from "@/lib/format";

interface Props {
  team: string;
  datasetId: string;
  onDeleted: () => void;
}

export function DatasetDetail({ team, datasetId, onDeleted }: Props) {
  const { data: dataset } = useSuspenseQuery(datasetQuery(team, datasetId));
  const [isDeleting, setDeleting] = useState(false);
  const [isAddingVersion, setAddingVersion] = useState(false);
  const client = useQueryClient();
  const deletion = useMutation({
    mutationFn: () => deleteDataset(team, datasetId),
    onSuccess: () => {
      onDeleted();
      void client.invalidateQueries({ queryKey: ["datasets", team] });
      void client.invalidateQueries({ queryKey: ["team", team] });
    },
  });
  const newest = dataset.versions[0];
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
          <ForEditors>
            {newest !== undefined && (
              <Button
                aria-expanded={isAddingVersion}
                onClick={() => {
                  setAddingVersion(!isAddingVersion);
                }}
              >
                New version
              </Button>
            )}
            {dataset.versions.some(({ state }) => state !== "failed") && (
              <Link to="/$team/runs/new" params={{ team }} search={{ dataset: datasetId }} className={buttonClass("primary")}>
                New run
              </Link>
            )}
            <Button
              variant="danger"
              onClick={() => {
                deletion.reset();
                setDeleting(true);
              }}
            >
              Delete dataset…
            </Button>
          </ForEditors>
        }
      >
        <span className="text-soft">
          <Copyable text={dataset.id} />
        </span>
        <Link to="/$team/runs" params={{ team }} search={{ group: "dataset", open: datasetId }} className="text-accent underline-offset-2 hover:underline max-tablet:leading-10">
          Runs with this dataset
        </Link>
      </TitleRow>
      <div className="flex flex-col gap-3">
        {dataset.same_files_as.map((same) => (
          <p key={same.dataset} className="panel px-4 py-2">
            Version {same.version} of{" "}
            <Link to="/$team/datasets/$datasetId" params={{ team, datasetId: same.dataset }} className="text-accent underline-offset-2 hover:underline">
              {same.name}
            </Link>{" "}
            has the same files.
          </p>
        ))}
        {isAddingVersion && newest !== undefined && (
          <NewVersion
            team={team}
            dataset={dataset}
            newest={newest}
            onClose={() => {
              setAddingVersion(false);
            }}
          />
        )}
        {dataset.versions.map((version) => (
          <VersionPanel key={version.number} team={team} dataset={dataset} version={version} isNewest={version === newest} />
        ))}
      </div>
      {isDeleting && (
        <ConfirmDialog
          title={
            <>
              Delete {dataset.name}<ShortId id={dataset.id} />?
            </>
          }
          consequence={consequence()}
          confirmLabel="Delete dataset"
          cancelLabel="Cancel"
          busy={deletion.isPending}
          error={deletion.error}
          onConfirm={() => {
            deletion.mutate();
          }}
          onClose={() => {
            setDeleting(false);
          }}
        />
      )}
    </>
  );

  /** Versions share files; each file counts once. */
  function consequence(): string {
    const sizes = new Map(dataset.versions.flatMap(({ files }) => files.map((file) => [file.digest, file.bytes] as const)));
    const freed = [...sizes.values()].reduce((sum, size) => sum + size, 0);
    const frees = freed === 0 ? "" : `, and frees ${bytes(freed)} of files unless another dataset uses the same files`;
    return `This deletes its ${plural(dataset.versions.length, "version")} with all tokens${frees}. This cannot be undone. First cancel runs that still use it and delete mixtures made from it. Ended runs keep their metrics and checkpoints.`;
  }
}

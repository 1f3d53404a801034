import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { Dataset, DatasetVersion } from "@/api/types";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { ShortId } from "@/components/ShortId";
import { datasetQuery, deleteVersion } from "@/features/datasets/queries";
import { bytes } from "@/lib/format";

interface Props {
  team: string;
  dataset: Dataset;
  version: DatasetVersion;
  onClose: () => void;
}

/** Asks before a version is deleted, and says what that frees. */
export function DeleteVersion({ team, dataset, version, onClose }: Props) {
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => deleteVersion(team, dataset.id, version.number),
    onSuccess: () => {
      onClose();
      void client.invalidateQueries({ queryKey: datasetQuery(team, dataset.id).queryKey });
      void client.invalidateQueries({ queryKey: ["datasets", team] });
      void client.invalidateQueries({ queryKey: ["team", team] });
    },
  });
  return (
    <ConfirmDialog
      title={
        <>
          Delete version {version.number} of {dataset.name}<ShortId id={dataset.id} />?
        </>
      }
      consequence={`${consequence(dataset, version)} First cancel runs that still use it and delete mixtures made from it. Ended runs keep their metrics and checkpoints.`}
      confirmLabel="Delete version"
      cancelLabel="Cancel"
      busy={remove.isPending}
      error={remove.error}
      onConfirm={() => {
        remove.mutate();
      }}
      onClose={onClose}
    />
  );
}

/** Files that other versions use are kept. */
function consequence(dataset: Dataset, version: DatasetVersion): string {
  const elsewhere = new Set(
    dataset.versions.filter(({ number }) => number !== version.number).flatMap(({ files }) => files.map(({ digest }) => digest)),
  );
  const own = version.files.filter(({ digest }) => !elsewhere.has(digest));
  const freed = own.reduce((sum, file) => sum + file.bytes, 0);
  if (version.files.length === 0) return "This deletes its tokens; the datasets it mixes are kept. This cannot be undone.";
  if (freed === 0) return "This deletes its tokens. Its files are kept, because other versions use them. This cannot be undone.";
  const rest = own.length < version.files.length ? " Files that other versions use are kept." : "";
  return `This deletes its tokens and frees ${bytes(freed)} of files, unless another dataset uses the same files.${rest} This cannot be undone.`;
}

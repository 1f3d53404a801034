import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { Dataset, DatasetVersion } from "@/api/types";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { datasetQuery, deleteVersion } from "@/features/datasets/queries";
import { bytes } from "@/lib/format";

interface Props {
  team: string;
  dataset: Dataset;
  version: DatasetVersion;
  onClose: () => void;
}

/** Asks before a version goes, and says what it frees. */
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
      title={`Delete version ${version.number} of ${dataset.name}?`}
      consequence={`${consequence(dataset, version)} Runs that have not ended must be cancelled first, and mixtures made of it deleted; runs that have ended keep their numbers and checkpoints.`}
      verb="Delete version"
      keep="Keep it"
      busy={remove.isPending}
      error={remove.error}
      onConfirm={() => {
        remove.mutate();
      }}
      onClose={onClose}
    />
  );
}

/** Files that another version holds too stay. */
function consequence(dataset: Dataset, version: DatasetVersion): string {
  const elsewhere = new Set(
    dataset.versions.filter(({ number }) => number !== version.number).flatMap(({ files }) => files.map(({ digest }) => digest)),
  );
  const own = version.files.filter(({ digest }) => !elsewhere.has(digest));
  const freed = own.reduce((sum, file) => sum + file.bytes, 0);
  if (version.files.length === 0) return "This deletes its tokens; the datasets that it mixes stay. It cannot be undone.";
  if (freed === 0) return "This deletes its tokens. Its files stay, because other versions hold them too. It cannot be undone.";
  const rest = own.length < version.files.length ? " Files that other versions hold too stay." : "";
  return `This deletes its tokens and frees ${bytes(freed)} of files, unless another dataset holds the same ones.${rest} It cannot be undone.`;
}

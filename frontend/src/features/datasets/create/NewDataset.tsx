import type { Dataset } from "@/api/types";
import { UploadWizard } from "@/features/datasets/create/UploadWizard";
import { createDataset } from "@/features/datasets/queries";
import { DEFAULT_CURATION } from "@/features/datasets/curation/curation";
import { useIdempotencyKey } from "@/lib/hooks/useIdempotencyKey";

interface Props {
  team: string;
  onCreated: (dataset: Dataset) => void;
}

export function NewDataset({ team, onCreated }: Props) {
  const keyOf = useIdempotencyKey();
  return (
    <UploadWizard
      team={team}
      title="Drop files or folders here to create a dataset"
      initial={DEFAULT_CURATION}
      hasName
      defaultSelection="this browser's"
      submitLabel="Create dataset"
      onSubmit={(dataset) => createDataset(team, dataset, keyOf(dataset))}
      onCreated={onCreated}
    />
  );
}

import { useQueryClient } from "@tanstack/react-query";
import { X } from "lucide-react";
import type { Dataset } from "@/api/types";
import { Button } from "@/components/Button";
import { MixForm } from "@/features/datasets/mix/MixForm";
import { createDataset } from "@/features/datasets/queries";
import { DEFAULT_CURATION } from "@/features/datasets/curation/curation";
import { useIdempotencyKey } from "@/lib/hooks/useIdempotencyKey";

interface Props {
  team: string;
  onCreated: (dataset: Dataset) => void;
  onClose: () => void;
}

/** Creates a dataset by mixing others. */
export function MixDatasets({ team, onCreated, onClose }: Props) {
  const client = useQueryClient();
  const keyOf = useIdempotencyKey();
  return (
    <section aria-label="Mix datasets" className="panel">
      <div className="flex min-h-11 items-center border-b px-4 py-1.5">
        <h2 className="font-semibold">Mix datasets</h2>
        <Button variant="quiet" className="ml-auto" onClick={onClose}>
          <X aria-hidden size={14} />
          Close <span className="sr-only">mix datasets</span>
        </Button>
      </div>
      <div className="px-4 py-3">
        <MixForm
          team={team}
          initial={DEFAULT_CURATION}
          hasName
          submitLabel="Create dataset"
          onSubmit={(mix) => createDataset(team, { ...mix, uploads: [] }, keyOf(mix))}
          onCreated={(dataset) => {
            void client.invalidateQueries({ queryKey: ["datasets", team] });
            onCreated(dataset);
          }}
        />
      </div>
    </section>
  );
}

import { useQueryClient } from "@tanstack/react-query";
import { X } from "lucide-react";
import type { Dataset } from "@/api/types";
import { Button } from "@/components/Button";
import { MixForm } from "@/features/datasets/MixForm";
import { createDataset } from "@/features/datasets/queries";
import { STANDARD_RECIPE } from "@/features/datasets/recipe";

interface Props {
  team: string;
  onMade: (dataset: Dataset) => void;
  onClose: () => void;
}

/** A new dataset mixed from others. */
export function MixDatasets({ team, onMade, onClose }: Props) {
  const client = useQueryClient();
  return (
    <section aria-label="Mix datasets" className="panel">
      <div className="flex min-h-11 items-center border-b px-4 py-1.5">
        <h2 className="font-semibold">Mix datasets</h2>
        <Button look="quiet" className="ml-auto" onClick={onClose}>
          <X aria-hidden size={14} />
          Close <span className="sr-only">mix datasets</span>
        </Button>
      </div>
      <div className="px-4 py-3">
        <MixForm
          team={team}
          start={STANDARD_RECIPE}
          named
          verb="Create dataset"
          make={({ name, recipe }) => createDataset(team, name, [], recipe)}
          onMade={(dataset) => {
            void client.invalidateQueries({ queryKey: ["datasets", team] });
            onMade(dataset);
          }}
        />
      </div>
    </section>
  );
}

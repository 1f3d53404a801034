import { useQueryClient } from "@tanstack/react-query";
import { X } from "lucide-react";
import { useState } from "react";
import type { Dataset, DatasetVersion } from "@/api/types";
import { Button } from "@/components/Button";
import { Segmented } from "@/components/Segmented";
import { Intake } from "@/features/datasets/Intake";
import { MixForm } from "@/features/datasets/MixForm";
import { createVersion, datasetQuery } from "@/features/datasets/queries";
import { RecipeVersion } from "@/features/datasets/RecipeVersion";

interface Props {
  team: string;
  dataset: Dataset;
  newest: DatasetVersion;
  onClose: () => void;
}

const WAYS = ["add files", "replace files", "recipe only"] as const;
type Way = (typeof WAYS)[number];

const HELP: Record<Way, string> = {
  "add files": "The files of the newest version, and those that you add.",
  "replace files": "Only the files that you upload now; the old version stays as it is.",
  "recipe only": "The same files by another recipe.",
};

/** The next version of a dataset: other files, or the same by another recipe. */
export function NewVersion({ team, dataset, newest, onClose }: Props) {
  const [way, setWay] = useState<Way>("add files");
  const client = useQueryClient();
  const mixed = newest.recipe.mix.length > 0;

  function made(next: Dataset): void {
    client.setQueryData(datasetQuery(team, dataset.id).queryKey, next);
    void client.invalidateQueries({ queryKey: ["datasets", team] });
    onClose();
  }

  return (
    <section aria-label="New version" className="panel">
      <div className="flex min-h-11 flex-wrap items-center gap-x-4 gap-y-2 border-b px-4 py-1.5">
        <h2 className="font-semibold">New version</h2>
        {!mixed && <Segmented label="What changes" value={way} options={WAYS} onChange={setWay} />}
        <Button look="quiet" className="ml-auto" onClick={onClose}>
          <X aria-hidden size={14} />
          Close <span className="sr-only">new version</span>
        </Button>
      </div>
      <div className="px-4 py-3">
        {mixed ? (
          <MixForm
            team={team}
            start={newest.recipe}
            named={false}
            verb="Create version"
            make={({ recipe }) => createVersion(team, dataset.id, { uploads: null, base: newest.number, keepFiles: false, recipe })}
            onMade={made}
          />
        ) : (
          <>
            <p className="mb-3 text-soft">{HELP[way]}</p>
            {way === "recipe only" ? (
              <RecipeVersion key={newest.number} team={team} dataset={dataset} base={newest} onMade={made} />
            ) : (
              <Intake
                team={team}
                title="Drop files or folders here to add a version"
                start={newest.recipe}
                named={false}
                begin="added here"
                verb="Create version"
                make={({ uploads, recipe }) =>
                  createVersion(team, dataset.id, { uploads, base: newest.number, keepFiles: way === "add files", recipe })
                }
                onMade={made}
              />
            )}
          </>
        )}
      </div>
    </section>
  );
}

import { useQueryClient } from "@tanstack/react-query";
import { X } from "lucide-react";
import { useState } from "react";
import type { Dataset, DatasetVersion } from "@/api/types";
import { Button } from "@/components/Button";
import { Segmented } from "@/components/Segmented";
import { UploadWizard } from "@/features/datasets/create/UploadWizard";
import { MixForm } from "@/features/datasets/mix/MixForm";
import { createVersion, datasetQuery, type NewVersionInput } from "@/features/datasets/queries";
import { CurationVersionForm } from "@/features/datasets/curation/CurationVersionForm";
import { useIdempotencyKey } from "@/lib/hooks/useIdempotencyKey";

interface Props {
  team: string;
  dataset: Dataset;
  newest: DatasetVersion;
  onClose: () => void;
}

const MODES = ["add files", "replace files", "curation only"] as const;
type Mode = (typeof MODES)[number];

const MODE_HELP: Record<Mode, string> = {
  "add files": "The files of the newest version and the ones you add.",
  "replace files": "Only the files you upload now; the previous version does not change.",
  "curation only": "The same files with different curation.",
};

/** The next version of a dataset: other files, or the same files with different curation. */
export function NewVersion({ team, dataset, newest, onClose }: Props) {
  const [mode, setMode] = useState<Mode>("add files");
  const client = useQueryClient();
  const keyOf = useIdempotencyKey();
  const mixed = newest.curation.mix.length > 0;

  function create(version: NewVersionInput): Promise<Dataset> {
    return createVersion(team, dataset.id, version, keyOf(version));
  }

  async function handleCreated(next: Dataset): Promise<void> {
    const { queryKey } = datasetQuery(team, dataset.id);
    // A poll in flight would bring back the dataset without this version.
    await client.cancelQueries({ queryKey, exact: true });
    client.setQueryData(queryKey, next);
    void client.invalidateQueries({ queryKey: ["datasets", team] });
    onClose();
  }

  return (
    <section aria-label="New version" className="panel">
      <div className="flex min-h-11 flex-wrap items-center gap-x-4 gap-y-2 border-b px-4 py-1.5">
        <h2 className="font-semibold">New version</h2>
        {!mixed && <Segmented label="What changes" value={mode} options={MODES} onChange={setMode} />}
        <Button variant="quiet" className="ml-auto" onClick={onClose}>
          <X aria-hidden size={14} />
          Close <span className="sr-only">new version</span>
        </Button>
      </div>
      <div className="px-4 py-3">
        {mixed ? (
          <MixForm
            team={team}
            initial={newest.curation}
            hasName={false}
            submitLabel="Create version"
            onSubmit={({ curation }) => create({ uploads: null, base: newest.number, keepFiles: false, curation })}
            onCreated={(next) => void handleCreated(next)}
          />
        ) : (
          <>
            <p className="mb-3 text-soft">{MODE_HELP[mode]}</p>
            {mode === "curation only" ? (
              <CurationVersionForm key={newest.number} team={team} dataset={dataset} base={newest} onCreated={(next) => void handleCreated(next)} />
            ) : (
              <UploadWizard
                team={team}
                title="Drop files or folders here to add a version"
                initial={newest.curation}
                hasName={false}
                defaultSelection="added here"
                submitLabel="Create version"
                onSubmit={({ uploads, curation }) => create({ uploads, base: newest.number, keepFiles: mode === "add files", curation })}
                onCreated={(next) => void handleCreated(next)}
              />
            )}
          </>
        )}
      </div>
    </section>
  );
}

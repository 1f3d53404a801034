import { useState } from "react";
import type { Dataset, Recipe } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Composer } from "@/features/datasets/Composer";
import { DropZone } from "@/features/datasets/DropZone";
import { UploadTray } from "@/features/datasets/UploadTray";
import { useTray, type Begin } from "@/features/datasets/useTray";
import { plural } from "@/lib/format";

export interface FilesWish {
  name: string;
  uploads: string[];
  recipe: Recipe;
}

interface Props {
  team: string;
  /** What dropping files here leads to. */
  title: string;
  /** The recipe to begin with. */
  start: Recipe;
  /** Whether what is made here gets a name. */
  named: boolean;
  /** Which files are ticked before anybody has said so. */
  begin: Begin;
  verb: string;
  make: (wish: FilesWish) => Promise<Dataset>;
  onMade: (dataset: Dataset) => void;
}

/** Files in, a look at their first rows, and a dataset or a version out. */
export function Intake({ team, title, start, named, begin, verb, make, onMade }: Props) {
  const tray = useTray(team, begin);
  const [looking, setLooking] = useState(false);
  const ids = tray.chosen.flatMap(({ uploadId }) => uploadId ?? []);
  return (
    <div>
      <DropZone title={title} onFiles={(files) => void tray.add(files)} />
      {tray.error !== null && (
        <div className="mt-3">
          <ErrorNote error={tray.error} />
        </div>
      )}
      {tray.rows.length > 0 && <UploadTray rows={tray.rows} isUsed={tray.isUsed} onUse={tray.use} onRemove={tray.remove} />}
      {tray.rows.length > 0 && !(looking && tray.ready) && (
        <div className="mt-3 flex flex-wrap items-center gap-3">
          <Button
            look="primary"
            disabled={!tray.ready}
            onClick={() => {
              setLooking(true);
            }}
          >
            Look at the first rows
          </Button>
          <span className="text-small text-soft">{next()}</span>
        </div>
      )}
      {looking && tray.ready && (
        <Composer
          team={team}
          uploads={ids}
          names={tray.chosen.map(({ name }) => name)}
          start={start}
          named={named}
          verb={verb}
          make={make}
          onMade={(dataset) => {
            setLooking(false);
            tray.finish(ids);
            onMade(dataset);
          }}
          onLeaveOut={(uploadId) => {
            const row = tray.chosen.find((one) => one.uploadId === uploadId);
            if (row !== undefined) tray.use(row, false);
          }}
        />
      )}
    </div>
  );

  function next(): string {
    if (tray.chosen.length === 0) return "Choose the files to use by their boxes.";
    const missing = tray.chosen.filter(({ state }) => state !== "complete").length;
    return missing === 0 ? `of ${plural(ids.length, "file")}` : `once ${plural(missing, "file")} more ${missing === 1 ? "is" : "are"} here`;
  }
}

import { useState } from "react";
import type { Dataset, DatasetVersion } from "@/api/types";
import { Button } from "@/components/Button";
import { Bytes } from "@/components/Bytes";
import { Collapsible } from "@/components/Collapsible";
import { Meter } from "@/components/Meter";
import { Time } from "@/components/Time";
import { DeleteVersion } from "@/features/datasets/detail/DeleteVersion";
import { DocumentList } from "@/features/datasets/detail/DocumentList";
import { FileList } from "@/features/datasets/detail/FileList";
import { PreparationRow } from "@/features/datasets/detail/PreparationRow";
import { changeText, describeCuration } from "@/features/datasets/curation/curation";
import { RejectedList } from "@/features/datasets/detail/RejectedList";
import { StatisticsPanel } from "@/features/datasets/detail/StatisticsPanel";
import { VersionPill } from "@/features/datasets/VersionPill";
import { useCanEdit } from "@/lib/permissions";
import { bytes, plural } from "@/lib/format";

interface Props {
  team: string;
  dataset: Dataset;
  version: DatasetVersion;
  isNewest: boolean;
}

/** One immutable version: what changed, its progress and its content. */
export function VersionPanel({ team, dataset, version, isNewest }: Props) {
  const [isDeleting, setDeleting] = useState(false);
  const canEdit = useCanEdit();
  const { number, state, statistics, files, changes, preparations, curation } = version;
  const rejected = statistics?.rejected ?? files.reduce((sum, file) => sum + (file.rejected ?? 0), 0);
  // The state and the error of a version that failed say it for its preparations too.
  const shown = preparations.filter(({ error }) => state !== "failed" || (error && error !== version.error));
  const summary = describeCuration(curation);
  return (
    <section className="panel min-w-0" aria-label={`Version ${number}`}>
      <div className="flex min-h-11 flex-wrap items-center gap-x-3 gap-y-1 border-b px-4 py-1.5">
        <h2 className="font-semibold">Version {number}</h2>
        {(state !== "ready" || preparations.length === 0) && <VersionPill version={version} />}
        <span className="text-soft">
          {files.length > 0 && (
            <>
              <Bytes value={version.bytes} /> in {plural(files.length, "file")},{" "}
            </>
          )}
          <Time at={version.created} />
        </span>
        {canEdit && dataset.versions.length > 1 && (
          <Button
            variant="quiet"
            className="ml-auto"
            onClick={() => {
              setDeleting(true);
            }}
          >
            Delete version <span className="sr-only">{number}</span>
          </Button>
        )}
      </div>
      {(changes.length > 0 || summary.length > 0) && (
        <div className="border-b px-4 py-2">
          {changes.length > 0 && (
            <ul aria-label="What changed">
              {changes.map((change) => (
                <li key={change}>{changeText(change)}</li>
              ))}
            </ul>
          )}
          {summary.length > 0 && <p className="text-soft">Curation: {summary.join(", ")}.</p>}
        </div>
      )}
      {(state === "waiting" || state === "reading") && <Progress version={version} />}
      {version.error && <p className="px-4 py-2">{version.error}</p>}
      {shown.length > 0 && (
        <ul className="divide-y border-b">
          {shown.map((preparation) => (
            <PreparationRow
              key={preparation.id}
              team={team}
              dataset={dataset.id}
              version={number}
              preparation={preparation}
              isVersionUsable={state !== "failed"}
            />
          ))}
        </ul>
      )}
      {statistics !== null && statistics !== undefined && <StatisticsPanel team={team} statistics={statistics} preparations={preparations} />}
      <div className="divide-y border-t">
        {rejected > 0 && (
          <Collapsible title={`${plural(rejected, "document")} could not be read`} summary="with file and line">
            <RejectedList team={team} dataset={dataset.id} version={number} />
          </Collapsible>
        )}
        {files.length > 0 && (
          <Collapsible title={plural(files.length, "file")} summary={files.map(({ name }) => name).join(", ")}>
            <FileList files={files} />
          </Collapsible>
        )}
        {state === "ready" && (
          <Collapsible title="Documents" summary="with reasons for dropped ones" defaultOpen={isNewest}>
            <DocumentList team={team} dataset={dataset.id} version={number} />
          </Collapsible>
        )}
      </div>
      {isDeleting && (
        <DeleteVersion
          team={team}
          dataset={dataset}
          version={version}
          onClose={() => {
            setDeleting(false);
          }}
        />
      )}
    </section>
  );
}

function Progress({ version }: { version: DatasetVersion }) {
  const { read_bytes: read, bytes: all, state } = version;
  const isRead = all > 0 && read >= all;
  return (
    <div className="flex flex-wrap items-center gap-x-4 gap-y-1 border-b px-4 py-2">
      {!isRead && all > 0 && <Meter fraction={read / all} label={`Reading of version ${version.number}`} className="w-48" />}
      <span className="text-soft">{progressText()}</span>
    </div>
  );

  function progressText(): string {
    if (isRead || all === 0) return "applying curation";
    return state === "waiting" && read === 0 ? "waiting for a worker to read it" : `reading, ${bytes(read)} of ${bytes(all)}`;
  }
}

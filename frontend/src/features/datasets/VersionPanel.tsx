import { useState } from "react";
import type { DatasetVersion, Preparation } from "@/api/types";
import { Bytes } from "@/components/Bytes";
import { Time } from "@/components/Time";
import { PreparationRow } from "@/features/datasets/PreparationRow";
import { RejectedList } from "@/features/datasets/RejectedList";
import { plural } from "@/lib/format";

interface Props {
  team: string;
  dataset: string;
  version: DatasetVersion;
}

/** One immutable version: its files, its preparations, and the documents that could not be read. */
export function VersionPanel({ team, dataset, version }: Props) {
  const [showing, setShowing] = useState(false);
  const rejected = Math.max(0, ...version.preparations.map((preparation: Preparation) => preparation.rejected ?? 0));
  return (
    <section className="panel" aria-label={`Version ${version.number}`}>
      <h2 className="flex flex-wrap items-baseline gap-x-3 border-b px-4 py-2">
        <span className="font-semibold">Version {version.number}</span>
        <span className="text-soft">
          <Bytes value={version.bytes} /> in {plural(version.files.length, "file")}, <Time at={version.created} />
        </span>
      </h2>
      <ul className="divide-y">
        {version.preparations.map((preparation) => (
          <PreparationRow key={preparation.id} preparation={preparation} />
        ))}
      </ul>
      <ul className="border-t px-4 py-2 text-soft">
        {version.files.map(({ name, bytes, digest }) => (
          <li key={name} className="flex flex-wrap gap-x-4">
            <span className="break-all text-text">{name}</span>
            <Bytes value={bytes} />
            <span className="font-mono text-mono" title={`SHA-256 ${digest}`}>
              {digest.slice(0, 12)}
            </span>
          </li>
        ))}
      </ul>
      {rejected > 0 && (
        <div className="border-t px-4 py-2">
          <button
            type="button"
            aria-expanded={showing}
            className="text-warn hover:underline"
            onClick={() => {
              setShowing(!showing);
            }}
          >
            {plural(rejected, "document")} could not be read: {showing ? "hide" : "show"}
          </button>
          {showing && <RejectedList team={team} dataset={dataset} version={version.number} />}
        </div>
      )}
    </section>
  );
}

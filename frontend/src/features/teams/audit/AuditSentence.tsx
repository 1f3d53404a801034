import { Link } from "@tanstack/react-router";
import { Fragment } from "react";
import type { AuditEntry } from "@/api/types";
import { shortId } from "@/lib/shortId";

const LINK_CLASS = "text-accent underline underline-offset-2";

/** What an entry of the audit log did, with links to runs and datasets that still exist. */
export function AuditSentence({ entry: { path, names, sentence } }: { entry: AuditEntry }) {
  const team = /^\/api\/v1\/teams\/([^/]+)/.exec(path)?.[1] ?? "";
  return (
    <span className="wrap-anywhere">
      {sentence.map((part, index) => (
        <Fragment key={index}>
          {index > 0 && " "}
          <PartText team={team} exists={part.object != null && part.object.id in names} {...part} />
        </Fragment>
      ))}
    </span>
  );
}

function PartText({ team, exists, text, object }: AuditEntry["sentence"][number] & { team: string; exists: boolean }) {
  const shown = object != null && object.kind !== "team" ? text.replace(object.id, shortId(object.id)) : text;
  if (object?.kind === "run" && exists) {
    return (
      <Link to="/$team/runs/$runId/$tab" params={{ team, runId: object.id, tab: "overview" }} className={LINK_CLASS} title={object.id}>
        {shown}
      </Link>
    );
  }
  if (object?.kind === "dataset" && exists) {
    return (
      <Link to="/$team/datasets/$datasetId" params={{ team, datasetId: object.id }} className={LINK_CLASS} title={object.id}>
        {shown}
      </Link>
    );
  }
  return <span title={object?.id}>{shown}</span>;
}

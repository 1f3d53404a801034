import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

const LINK_CLASS = "text-accent underline underline-offset-2";

/** What an entry of the audit log changed: a link to the run or dataset, otherwise the path of the request. */
export function AuditTarget({ path }: { path: string }) {
  const [, team = "", kind = "", id = ""] = /^\/api\/v1\/teams\/([^/]+)\/(runs|datasets)\/((?:run|ds)_[^/]+)/.exec(path) ?? [];
  return <span className="block text-small break-all text-soft">{link(team, kind, id) ?? path.replace(/^\/api\/v1/, "")}</span>;
}

function link(team: string, kind: string, id: string): ReactNode {
  if (kind === "runs") {
    return (
      <Link to="/$team/runs/$runId/$tab" params={{ team, runId: id, tab: "overview" }} className={LINK_CLASS}>
        run {id}
      </Link>
    );
  }
  if (kind === "datasets") {
    return (
      <Link to="/$team/datasets/$datasetId" params={{ team, datasetId: id }} className={LINK_CLASS}>
        dataset {id}
      </Link>
    );
  }
  return null;
}

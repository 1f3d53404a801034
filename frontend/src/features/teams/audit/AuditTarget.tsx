import { Link } from "@tanstack/react-router";
import { Fragment } from "react";
import { objectsOf, type AuditObject } from "@/features/teams/audit/auditText";

const LINK_CLASS = "text-accent underline underline-offset-2";

interface Props {
  path: string;
  /** Whether the row already shows the object’s name, as for a submitted run. A path without ids is then left out. */
  isNamed: boolean;
}

/** What an entry of the audit log changed: the objects in the path of its request, with links to runs and datasets; otherwise the path. */
export function AuditTarget({ path, isNamed }: Props) {
  const objects = objectsOf(path);
  if (objects.length === 0 && isNamed) return null;
  const team = /^\/api\/v1\/teams\/([^/]+)/.exec(path)?.[1] ?? "";
  return (
    <span className="block text-small wrap-anywhere text-soft" title={path}>
      {objects.length === 0
        ? path.replace(/^\/api\/v1/, "")
        : objects.map((object, index) => (
            <Fragment key={object.id}>
              {index > 0 && ", "}
              <ObjectText team={team} {...object} />
            </Fragment>
          ))}
    </span>
  );
}

function ObjectText({ team, kind, id }: AuditObject & { team: string }) {
  if (kind === "run") {
    return (
      <Link to="/$team/runs/$runId/$tab" params={{ team, runId: id, tab: "overview" }} className={LINK_CLASS}>
        run {id}
      </Link>
    );
  }
  if (kind === "dataset") {
    return (
      <Link to="/$team/datasets/$datasetId" params={{ team, datasetId: id }} className={LINK_CLASS}>
        dataset {id}
      </Link>
    );
  }
  return `${kind} ${id}`;
}

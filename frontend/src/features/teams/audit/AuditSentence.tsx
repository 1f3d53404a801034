import { Link } from "@tanstack/react-router";
import { Fragment } from "react";
import { sentenceOf, type ObjectNames, type SentencePart } from "@/features/teams/audit/auditText";

const LINK_CLASS = "text-accent underline underline-offset-2";

interface Props {
  action: string;
  path: string;
  details: string;
  names: ObjectNames;
}

/** What an entry of the audit log did, with links to runs and datasets that it did not delete. */
export function AuditSentence({ action, path, details, names }: Props) {
  const team = /^\/api\/v1\/teams\/([^/]+)/.exec(path)?.[1] ?? "";
  return (
    <span className="wrap-anywhere">
      {sentenceOf(action, path, details, names).map((part, index) => (
        <Fragment key={index}>
          {index > 0 && " "}
          <PartText team={team} isDeleted={isDeletion(action, details, part)} {...part} />
        </Fragment>
      ))}
    </span>
  );
}

function isDeletion(action: string, details: string, { object }: SentencePart): boolean {
  return action === `delete_${object?.kind}` || (action === "act_on_runs" && /"(?:action|verb)": "delete"/.test(details));
}

function PartText({ team, isDeleted, text, object }: SentencePart & { team: string; isDeleted: boolean }) {
  if (object?.kind === "run" && !isDeleted) {
    return (
      <Link to="/$team/runs/$runId/$tab" params={{ team, runId: object.id, tab: "overview" }} className={LINK_CLASS} title={object.id}>
        {text}
      </Link>
    );
  }
  if (object?.kind === "dataset" && !isDeleted) {
    return (
      <Link to="/$team/datasets/$datasetId" params={{ team, datasetId: object.id }} className={LINK_CLASS} title={object.id}>
        {text}
      </Link>
    );
  }
  return <span title={object?.id}>{text}</span>;
}

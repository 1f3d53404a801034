import type { AuditEntry } from "@/api/types";
import { rowClass } from "@/components/Table";
import { Td } from "@/components/Td";
import { Time } from "@/components/Time";
import { AuditTarget } from "@/features/teams/audit/AuditTarget";
import { actionLabel, detailsText, givenName } from "@/features/teams/audit/auditText";

/** Who did what to what, and from where. The tooltip has the action's name in the API, which the search finds. */
export function AuditRow({ entry: { time, name, via, address, action, path, details } }: { entry: AuditEntry }) {
  const objectName = givenName(details);
  return (
    <tr className={`${rowClass} align-top`}>
      <Td className="whitespace-nowrap">
        <Time at={time} />
      </Td>
      <Td>
        {name}
        <span className="block text-small text-soft">{via === "browser" ? "browser" : `key ${via}`}</span>
      </Td>
      <Td>
        <span title={action}>{actionLabel(action)}</span>
        {objectName !== undefined && <span className="font-medium wrap-anywhere"> {objectName}</span>}
        <AuditTarget path={path} isNamed={objectName !== undefined} />
        {details !== "" && (
          <details className="text-small text-soft">
            <summary className="w-fit cursor-pointer">details</summary>
            <span className="wrap-break-word">{detailsText(details)}</span>
          </details>
        )}
      </Td>
      <Td className="text-soft max-tablet:hidden">{address}</Td>
    </tr>
  );
}

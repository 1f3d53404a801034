import type { AuditEntry } from "@/api/types";
import { rowClass } from "@/components/Table";
import { Td } from "@/components/Td";
import { Time } from "@/components/Time";
import { AuditSentence } from "@/features/teams/audit/AuditSentence";
import { requestText } from "@/features/teams/audit/requestText";

/** Who did what to what, and from where. The details have the operation, which the search finds, and the request. */
export function AuditRow({ entry }: { entry: AuditEntry }) {
  const { time, name, via, key_name: keyName, address, action, path, details } = entry;
  const origin = via === "browser" ? via : `key ${keyName ?? via}`;
  return (
    <tr className={`${rowClass} align-top`}>
      <Td className="whitespace-nowrap">
        <Time at={time} />
      </Td>
      <Td>
        <span className="block max-w-48 wrap-break-word tablet:truncate" title={name}>
          {name}
        </span>
      </Td>
      <Td>
        <div className="flex flex-wrap items-baseline gap-x-3">
          <AuditSentence entry={entry} />
          <details className="text-small text-soft open:basis-full">
            <summary className="w-fit cursor-pointer">details</summary>
            <p className="wrap-anywhere">
              {action} {path}
            </p>
            {details !== "" && <p className="wrap-anywhere">{requestText(details)}</p>}
            <p className={keyName == null ? "tablet:hidden" : undefined}>
              {origin}
              {keyName != null && ` (${via})`}, {address}
            </p>
          </details>
        </div>
      </Td>
      <Td className="text-soft max-tablet:hidden">
        <span className="block max-w-48 truncate" title={via === "browser" ? undefined : via}>
          {origin}
        </span>
      </Td>
      <Td className="text-soft max-tablet:hidden">{address}</Td>
    </tr>
  );
}

import type { AuditEntry } from "@/api/types";
import { rowClass } from "@/components/Table";
import { Td } from "@/components/Td";
import { AuditSentence } from "@/features/teams/audit/AuditSentence";
import { requestFields } from "@/features/teams/audit/requestFields";
import { clockTime, fullTime } from "@/lib/format";

/** Who did what to what at which time of the day, with which key, and from where. The details have the operation, which the search finds, and the request. */
export function AuditRow({ entry }: { entry: AuditEntry }) {
  const { time, name, via, key_name: keyName, address, action, path, details } = entry;
  const key = via === "browser" ? null : `key ${keyName ?? via}`;
  return (
    <tr className={`${rowClass} align-top`}>
      <Td className="whitespace-nowrap">
        <time dateTime={time} title={fullTime(time)}>
          {clockTime(time)}
        </time>
      </Td>
      <Td>
        <span className="block max-w-48 wrap-break-word tablet:truncate" title={name}>
          {name}
        </span>
        {key !== null && (
          <span className="block max-w-48 text-small wrap-break-word text-soft tablet:truncate" title={via}>
            {key}
          </span>
        )}
      </Td>
      <Td>
        <div className="flex flex-wrap items-baseline gap-x-3">
          <AuditSentence entry={entry} />
          <details className="text-small text-soft open:basis-full max-tablet:basis-full">
            <summary className="w-fit cursor-pointer max-tablet:-my-1 max-tablet:py-[14px]">details</summary>
            <p className="wrap-anywhere">
              {action} {path}
            </p>
            <dl className="wrap-anywhere">
              {requestFields(details).map(([name, value], index) => (
                <div key={index}>
                  {name !== "" && <dt className="inline">{name}: </dt>}
                  <dd className="inline text-text">{value}</dd>
                </div>
              ))}
            </dl>
            <p>
              {key ?? via}
              {keyName != null && ` (${via})`}, {address}
            </p>
          </details>
        </div>
      </Td>
      <Td className="text-soft max-tablet:hidden">{address}</Td>
    </tr>
  );
}

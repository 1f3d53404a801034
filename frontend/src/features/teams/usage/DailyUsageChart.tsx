import { useState } from "react";
import { TableToggle } from "@/components/charts/TableToggle";
import { Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { axisTop, DEVICE_LABELS, PERSON_COLORS, type DayHours, type PersonHours } from "@/features/teams/usage/usageView";
import { exactNumber, hoursText } from "@/lib/format";

interface Props {
  device: string;
  days: readonly DayHours[];
  /** The people who used them, highest use first. */
  people: readonly PersonHours[];
}

const dayText = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** Slot-hours of a device by day and person, as bars or as a table. */
export function DailyUsageChart({ device, days, people }: Props) {
  const [asTable, setAsTable] = useState(false);
  const unit = DEVICE_LABELS[device]?.hours ?? `${device} slot-hours`;
  const total = days.reduce((sum, { hours }) => sum + hours, 0);
  const today = days[days.length - 1]?.hours ?? 0;
  // One person needs no legend.
  const parts = people.length > 1 ? people : [];
  const caption = `${hoursText(total)} ${unit} in ${days.length} days, ${hoursText(today)} today`;
  return (
    <figure className="panel min-w-0 p-4">
      <div className="mb-3 flex flex-wrap items-center justify-between gap-x-4 gap-y-1">
        <figcaption className="normal-nums">
          <span className="font-medium">{unit} by day</span> <span className="text-small text-soft">{caption}</span>
        </figcaption>
        <span className="ml-auto text-small">
          <TableToggle title={`${unit} by day`} asTable={asTable} onChange={setAsTable} />
        </span>
      </div>
      {asTable ? (
        <Table
          label={`${unit} by day`}
          head={
            <>
              <Th>day (UTC)</Th>
              <Th className="text-right">{parts.length > 0 ? "all" : unit}</Th>
              {parts.map(({ key, name }) => (
                <Th key={key} className="text-right whitespace-nowrap">
                  {name}
                </Th>
              ))}
            </>
          }
        >
          {days
            .map(({ day, hours }, index) => (
              <tr key={day} className="border-b last:border-b-0">
                <Td className="whitespace-nowrap">{dayText.format(new Date(day))}</Td>
                <Td className="text-right">{hoursText(hours)}</Td>
                {parts.map(({ key, hours }) => (
                  <Td key={key} className="text-right">
                    {hoursText(hours[index] ?? 0)}
                  </Td>
                ))}
              </tr>
            ))
            .toReversed()}
        </Table>
      ) : (
        <>
          <Bars days={days} people={parts} label={caption} />
          {parts.length > 0 && (
            <ul aria-label={`People in the chart of ${unit}`} className="mt-3 flex flex-wrap gap-x-4 gap-y-1 text-small">
              {parts.map(({ key, name, total }, index) => (
                <li key={key} className="flex items-center gap-1.5">
                  <span aria-hidden className={`size-2.5 rounded-[2px] ${PERSON_COLORS[index] ?? ""}`} />
                  {name} <span className="text-soft">{hoursText(total)}</span>
                </li>
              ))}
            </ul>
          )}
        </>
      )}
    </figure>
  );
}

function Bars({ days, people, label }: { days: readonly DayHours[]; people: readonly PersonHours[]; label: string }) {
  const top = axisTop(Math.max(...days.map(({ hours }) => hours)));
  const shown = [days[0], days[Math.floor(days.length / 2)], days[days.length - 1]];
  return (
    <div role="img" aria-label={label} className="grid grid-cols-[auto_minmax(0,1fr)] gap-x-2 text-small text-soft">
      <div className="flex h-40 flex-col justify-between text-right leading-none">
        <span>{exactNumber(top)}</span>
        <span>{exactNumber(top / 2)}</span>
        <span>0</span>
      </div>
      <div className="relative h-40">
        <div className="absolute inset-0 flex flex-col justify-between">
          <div className="border-t" />
          <div className="border-t" />
          <div className="border-t border-control" />
        </div>
        <div className="absolute inset-0 flex items-end gap-px">
          {days.map(({ day, hours }, index) => (
            <div key={day} className="group flex h-full min-w-0 flex-1 items-end" title={barTitle(day, hours, people, index)}>
              <div
                className="flex w-full flex-col-reverse overflow-hidden rounded-t-[2px] bg-series-1 group-hover:brightness-125"
                style={{ height: hours === 0 ? 0 : `max(2px, ${(hours / top) * 100}%)` }}
              >
                {hours > 0 &&
                  people.map((person, color) => (
                    <div key={person.key} className={PERSON_COLORS[color]} style={{ height: `${((person.hours[index] ?? 0) / hours) * 100}%` }} />
                  ))}
              </div>
            </div>
          ))}
        </div>
      </div>
      <span />
      <div className="mt-1 flex justify-between">
        {shown.map((one, index) => (
          <span key={index}>{one === undefined ? "" : dayText.format(new Date(one.day))}</span>
        ))}
      </div>
    </div>
  );
}

/** "3 Nov: 12 (Ada 10, Bob 2)". */
function barTitle(day: string, hours: number, people: readonly PersonHours[], index: number): string {
  const parts = people.flatMap(({ name, hours }) => ((hours[index] ?? 0) > 0 ? [`${name} ${hoursText(hours[index] ?? 0)}`] : []));
  return `${dayText.format(new Date(day))}: ${hoursText(hours)}${parts.length > 0 ? ` (${parts.join(", ")})` : ""}`;
}

import { ChevronDown } from "lucide-react";
import { Menu } from "@/components/Menu";
import { MenuCheck } from "@/components/MenuCheck";
import { MOST_SERIES } from "@/features/metrics/compareView";
import { seriesLook } from "@/features/metrics/seriesLooks";

interface Props {
  /** Names of what was measured. */
  known: readonly string[];
  chosen: readonly string[];
  onChange: (series: string[]) => void;
}

/** Which series are drawn, each in a chart of its own. */
export function SeriesMenu({ known, chosen, onChange }: Props) {
  const names = [...new Set([...chosen, ...known])].sort((a, b) => seriesLook(a).title.localeCompare(seriesLook(b).title));
  return (
    <Menu
      trigger={
        <button type="button" className="control inline-flex h-6.5 items-center gap-1 px-2 hover:bg-raised max-tablet:h-11">
          series <span className="text-soft">{chosen.length}</span>
          <ChevronDown aria-hidden size={14} />
        </button>
      }
    >
      <div className="max-h-[60vh] overflow-y-auto">
        {names.map((name) => {
          const checked = chosen.includes(name);
          return (
            <MenuCheck
              key={name}
              checked={checked}
              onChange={() => {
                if (checked) onChange(chosen.filter((one) => one !== name));
                else if (chosen.length < MOST_SERIES) onChange([...chosen, name]);
              }}
            >
              {seriesLook(name).title}
            </MenuCheck>
          );
        })}
      </div>
    </Menu>
  );
}

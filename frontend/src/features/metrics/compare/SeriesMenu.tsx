import { ChevronDown } from "lucide-react";
import { Menu } from "@/components/Menu";
import { MenuCheckbox } from "@/components/MenuCheckbox";
import { MAX_SERIES } from "@/features/metrics/compare/compareView";
import { useSeriesStyle } from "@/features/metrics/charts/useSeriesStyle";

interface Props {
  /** Names of measured series. */
  known: readonly string[];
  chosen: readonly string[];
  onChange: (series: string[]) => void;
}

/** Selects the series to draw, one chart each. */
export function SeriesMenu({ known, chosen, onChange }: Props) {
  const styleOf = useSeriesStyle();
  const names = [...new Set([...chosen, ...known])].sort((a, b) => styleOf(a).title.localeCompare(styleOf(b).title));
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
            <MenuCheckbox
              key={name}
              checked={checked}
              onChange={() => {
                if (checked) onChange(chosen.filter((value) => value !== name));
                else if (chosen.length < MAX_SERIES) onChange([...chosen, name]);
              }}
            >
              {styleOf(name).title}
            </MenuCheckbox>
          );
        })}
      </div>
    </Menu>
  );
}

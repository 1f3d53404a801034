import { ChevronDown } from "lucide-react";
import { Button } from "@/components/Button";
import { Menu } from "@/components/Menu";
import { MenuAction } from "@/components/MenuAction";
import { exportUrl } from "@/features/runs/queries";
import type { RunFilter } from "@/features/runs/list/runFilter";
import { downloadFile } from "@/lib/downloadFile";

const FORMATS = [
  ["csv", "CSV"],
  ["parquet", "Parquet"],
] as const;

/** Saves all runs that match the filter, listed or not, as a file with a row per run. */
export function ExportMenu({ team, filter }: { team: string; filter: RunFilter }) {
  return (
    <div className="max-tablet:hidden">
      <Menu
        trigger={
          <Button>
            Export
            <ChevronDown aria-hidden size={14} className="text-soft" />
          </Button>
        }
      >
        {FORMATS.map(([format, name]) => (
          <MenuAction
            key={format}
            onSelect={() => {
              downloadFile(exportUrl(team, filter, format));
            }}
          >
            {name}
          </MenuAction>
        ))}
      </Menu>
    </div>
  );
}

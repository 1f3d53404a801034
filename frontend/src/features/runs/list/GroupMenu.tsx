import { ChevronDown } from "lucide-react";
import { Button } from "@/components/Button";
import { Menu } from "@/components/Menu";
import { MenuItem } from "@/components/MenuItem";
import { GROUPING_LABELS } from "@/features/runs/list/runGroups";
import { RUN_GROUPINGS, type RunGrouping } from "@/features/runs/list/runFilter";

interface Props {
  grouping: RunGrouping | undefined;
  onChange: (grouping: RunGrouping | undefined) => void;
}

/** Selects what the table is grouped by. */
export function GroupMenu({ grouping, onChange }: Props) {
  return (
    <Menu
      trigger={
        <Button>
          {grouping === undefined ? "Group by" : `Grouped by ${GROUPING_LABELS[grouping]}`}
          <ChevronDown aria-hidden size={14} className="text-soft max-tablet:hidden" />
        </Button>
      }
    >
      {[undefined, ...RUN_GROUPINGS].map((one) => (
        <MenuItem
          key={one ?? ""}
          checked={one === grouping}
          onSelect={() => {
            onChange(one);
          }}
        >
          {one === undefined ? "No groups" : GROUPING_LABELS[one]}
        </MenuItem>
      ))}
    </Menu>
  );
}

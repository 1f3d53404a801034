import { ChevronDown } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { Button } from "@/components/Button";
import { Menu } from "@/components/Menu";
import { MenuCheckbox } from "@/components/MenuCheckbox";
import { MenuItem } from "@/components/MenuItem";
import { COLUMN_STYLES, DEFAULT_COLUMNS, RUN_COLUMNS, toggleColumn, type RunColumn } from "@/features/runs/list/runColumns";

interface Props {
  columns: readonly RunColumn[];
  onChange: (columns: readonly RunColumn[]) => void;
}

/** Selects the table's columns. Phones always show the same few. */
export function ColumnMenu({ columns, onChange }: Props) {
  return (
    <div className="max-tablet:hidden">
      <Menu
        trigger={
          <Button>
            Columns
            <ChevronDown aria-hidden size={14} className="text-soft" />
          </Button>
        }
      >
        {RUN_COLUMNS.map((column) => (
          <MenuCheckbox
            key={column}
            checked={columns.includes(column)}
            onChange={() => {
              const next = toggleColumn(columns, column);
              if (next.length > 0) onChange(next);
            }}
          >
            {COLUMN_STYLES[column].menuLabel ?? COLUMN_STYLES[column].label}
          </MenuCheckbox>
        ))}
        <DropdownMenu.Separator className="my-1 border-t" />
        <MenuItem
          onSelect={() => {
            onChange(DEFAULT_COLUMNS);
          }}
        >
          Reset columns
        </MenuItem>
      </Menu>
    </div>
  );
}

import { ChevronDown } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { Button } from "@/components/Button";
import { Menu } from "@/components/Menu";
import { MenuCheck } from "@/components/MenuCheck";
import { MenuItem } from "@/components/MenuItem";
import { COLUMN_LOOKS, FIRST_COLUMNS, RUN_COLUMNS, toggledColumn, type RunColumn } from "@/features/runs/runColumns";

interface Props {
  columns: readonly RunColumn[];
  onChange: (columns: readonly RunColumn[]) => void;
}

/** Which columns the table has. Phones show the same few to everybody. */
export function ColumnMenu({ columns, onChange }: Props) {
  return (
    <div className="ml-auto max-tablet:hidden">
      <Menu
        trigger={
          <Button>
            Columns
            <ChevronDown aria-hidden size={14} className="text-soft" />
          </Button>
        }
      >
        {RUN_COLUMNS.map((column) => (
          <MenuCheck
            key={column}
            checked={columns.includes(column)}
            onChange={() => {
              const next = toggledColumn(columns, column);
              if (next.length > 0) onChange(next);
            }}
          >
            {COLUMN_LOOKS[column].word ?? COLUMN_LOOKS[column].head}
          </MenuCheck>
        ))}
        <DropdownMenu.Separator className="my-1 border-t" />
        <MenuItem
          onSelect={() => {
            onChange(FIRST_COLUMNS);
          }}
        >
          As at first
        </MenuItem>
      </Menu>
    </div>
  );
}

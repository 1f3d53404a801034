import { DropdownMenu } from "radix-ui";
import { Check } from "lucide-react";
import type { ReactNode } from "react";

interface Props {
  children: ReactNode;
  checked: boolean;
  onChange: () => void;
}

/** A checkbox in a menu that stays open while choices are made. */
export function MenuCheckbox({ children, checked, onChange }: Props) {
  return (
    <DropdownMenu.CheckboxItem
      checked={checked}
      onSelect={(event) => {
        event.preventDefault();
      }}
      onCheckedChange={onChange}
      className="flex h-8 cursor-pointer items-center gap-2 rounded-box px-2 outline-none data-highlighted:bg-raised max-tablet:h-11"
    >
      <Check aria-hidden size={14} className={checked ? "" : "invisible"} />
      {children}
    </DropdownMenu.CheckboxItem>
  );
}

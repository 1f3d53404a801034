import { DropdownMenu } from "radix-ui";
import { Check } from "lucide-react";
import type { ReactNode } from "react";

interface Props {
  children: ReactNode;
  checked?: boolean;
  onSelect: () => void;
}

export function MenuItem({ children, checked = false, onSelect }: Props) {
  return (
    <DropdownMenu.Item
      onSelect={onSelect}
      className="flex h-8 cursor-pointer items-center gap-2 rounded-box px-2 outline-none data-highlighted:bg-raised max-tablet:h-11"
    >
      <Check aria-hidden size={14} className={checked ? "" : "invisible"} />
      {children}
      {checked && <span className="sr-only">, selected</span>}
    </DropdownMenu.Item>
  );
}

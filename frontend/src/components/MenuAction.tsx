import { DropdownMenu } from "radix-ui";
import type { ReactNode } from "react";

interface Props {
  children: ReactNode;
  /** The shortcut for the same action. */
  shortcut?: string;
  /** The action cannot be undone. */
  danger?: boolean;
  onSelect: () => void;
}

/** An action in a menu. */
export function MenuAction({ children, shortcut, danger = false, onSelect }: Props) {
  return (
    <DropdownMenu.Item
      onSelect={onSelect}
      className={`flex h-8 cursor-pointer items-center justify-between gap-6 rounded-box px-3 outline-none data-highlighted:bg-raised max-tablet:h-11 ${danger ? "text-bad" : ""}`}
    >
      {children}
      {shortcut !== undefined && <kbd className="font-sans text-small text-soft">{shortcut}</kbd>}
    </DropdownMenu.Item>
  );
}

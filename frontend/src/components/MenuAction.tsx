import { DropdownMenu } from "radix-ui";
import type { ReactNode } from "react";

interface Props {
  children: ReactNode;
  /** The shortcut for the same action. */
  shortcut?: string;
  /** The action cannot be undone. */
  danger?: boolean;
  /** Where there is room it is a button beside the menu. */
  onPhonesOnly?: boolean;
  onSelect: () => void;
}

/** An action in a menu. */
export function MenuAction({ children, shortcut, danger = false, onPhonesOnly = false, onSelect }: Props) {
  return (
    <DropdownMenu.Item
      onSelect={({ currentTarget }) => {
        focusTrigger(currentTarget);
        onSelect();
      }}
      className={`flex h-8 cursor-pointer items-center justify-between gap-6 rounded-box px-3 outline-none data-highlighted:bg-raised max-tablet:h-11 ${danger ? "text-bad" : ""} ${onPhonesOnly ? "tablet:hidden" : ""}`}
    >
      {children}
      {shortcut !== undefined && <kbd className="font-sans text-small text-soft">{shortcut}</kbd>}
    </DropdownMenu.Item>
  );
}

/** A dialog that the action opens gives the focus back to where it was: the menu's item is gone by then. */
function focusTrigger(item: EventTarget | null): void {
  if (!(item instanceof HTMLElement)) return;
  const triggerId = item.closest("[role=menu]")?.getAttribute("aria-labelledby");
  if (typeof triggerId === "string") document.getElementById(triggerId)?.focus();
}

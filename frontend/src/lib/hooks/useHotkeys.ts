import { useEffect } from "react";

/** Single-key shortcuts of a page. They are ignored while the user types or holds Ctrl, Alt or ⌘. */
export function useHotkeys(commands: Record<string, () => void>): void {
  useEffect(() => {
    function onKey(event: KeyboardEvent): void {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const command = commands[event.key];
      if (command === undefined) return;
      event.preventDefault();
      command();
    }
    window.addEventListener("keydown", onKey);
    return () => {
      window.removeEventListener("keydown", onKey);
    };
  }, [commands]);
}

/** Whether the focused element handles keys itself. */
export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input:not([type=checkbox]), textarea, select, dialog, [role=dialog], [role=menu]") !== null;
}

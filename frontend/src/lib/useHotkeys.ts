import { useEffect } from "react";

/** Single-key commands of a page. They sleep while somebody types, and while Ctrl, Alt or ⌘ is held. */
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

/** Whether keys belong to what has the focus. */
export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input:not([type=checkbox]), textarea, select, dialog, [role=dialog], [role=menu]") !== null;
}

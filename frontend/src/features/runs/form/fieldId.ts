import { flushSync } from "react-dom";

/** Id of a field's control, for links from the list of problems. */
export function fieldId(path: string): string {
  return `field-${path.replaceAll(".", "-")}`;
}

/** Id of what a folded section contains. */
export function sectionId(key: string): string {
  return `section-${key}`;
}

/**
 * Moves the focus to the control of a field, or of the list that it is an element of, and opens its section if that is closed.
 * A field that the form does not show, such as one of a kind that is not chosen, has only its section.
 */
export function goToField(path: string): void {
  const [key = ""] = path.includes(".") ? path.split(".") : [];
  const header = document.querySelector<HTMLElement>(`[aria-controls="${sectionId(key)}"]`);
  if (controlOf(path) === null && header?.getAttribute("aria-expanded") === "false") {
    flushSync(() => {
      header.click();
    });
  }
  (controlOf(path) ?? header)?.focus();
}

function controlOf(path: string): HTMLElement | null {
  const parts = path.split(".");
  const paths = parts.map((_part, index) => parts.slice(0, parts.length - index).join("."));
  return paths.map((one) => document.getElementById(fieldId(one))).find((control) => control !== null) ?? null;
}

import { flushSync } from "react-dom";

/** Id of a field's control, for links from the list of problems. */
export function fieldId(path: string): string {
  return `field-${path.replaceAll(".", "-")}`;
}

/** Id of what a folded section contains. */
export function sectionId(key: string): string {
  return `section-${key}`;
}

/** Moves the focus to a field, and opens its section if that is closed. */
export function goToField(path: string): void {
  const find = () => document.getElementById(fieldId(path));
  if (find() === null) {
    const [key = ""] = path.includes(".") ? path.split(".") : [];
    flushSync(() => {
      document.querySelector<HTMLElement>(`[aria-controls="${sectionId(key)}"]`)?.click();
    });
  }
  find()?.focus();
}

import type { FormControl } from "@/components/invalidText";

/** The form that the user sent and has not edited since. */
let sentForm: EventTarget | null = null;

document.addEventListener("submit", ({ target }) => (sentForm = target), { capture: true });
document.addEventListener("input", () => (sentForm = null), { capture: true });

/** Goes to the first control with an error, if its form was just sent: an error that appears while the user types takes no focus. */
export function focusFirstErrorOfSent(form: HTMLFormElement | null): void {
  if (form !== null && form === sentForm) focusFirstError(form);
}

/** Goes to the first control of the form that is marked as invalid. */
export function focusFirstError(form: HTMLFormElement): void {
  const controls = [...form.elements] as FormControl[];
  controls.find((control) => control.getAttribute("aria-invalid") === "true")?.focus();
}

import type { FormControl } from "@/components/invalidText";

/** The form that the user submitted, until one of its errors got the focus or the user does something else. */
let submittedForm: EventTarget | null = null;

document.addEventListener("submit", ({ target }) => (submittedForm = target), { capture: true });
for (const type of ["input", "keydown", "pointerdown"]) {
  document.addEventListener(type, () => (submittedForm = null), { capture: true });
}

// An error that the form had before does not appear again. Its own handler has run, and what it changed is in the page.
document.addEventListener("submit", ({ target }) => {
  setTimeout(() => {
    if (target instanceof HTMLFormElement) focusFirstErrorOfSubmitted(target);
  });
});

/** Goes to the first control with an error, if its form was just submitted: an error that appears while the user types takes no focus. */
export function focusFirstErrorOfSubmitted(form: HTMLFormElement | null): void {
  if (form === null || form !== submittedForm) return;
  const controls = [...form.elements] as FormControl[];
  const wrong = controls.find((control) => control.getAttribute("aria-invalid") === "true");
  if (wrong === undefined) return;
  wrong.focus();
  submittedForm = null;
}

/** A control that a browser checks before it submits a form. */
export type FormControl = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

export const REQUIRED_TEXT = "This field is required.";
/** For `pattern`: more than white space. */
export const NOT_BLANK = ".*\\S.*";

/** What is wrong with a control's value, in the words of the pages, or of the browser for rarer mistakes. */
export function invalidText(control: FormControl): string {
  const { validity, value, title, type } = control;
  if (validity.badInput) return "Enter a number.";
  if (validity.valueMissing || value.trim() === "") return REQUIRED_TEXT;
  if (validity.typeMismatch) return type === "email" ? "Enter an email address, such as ada@example.org." : "Enter an address, such as https://example.org/hook.";
  if (validity.patternMismatch && title !== "") return `${title}.`;
  return control.validationMessage || "This value is not valid.";
}

/** Whether it is the first control of its form that needs another value: the one to go to. */
export function isFirstInvalid(control: FormControl): boolean {
  const controls = [...(control.form?.elements ?? [])] as FormControl[];
  return controls.find(({ willValidate, validity }) => willValidate && !validity.valid) === control;
}

import { useEffect, useId, useRef, useState, type ReactNode, type SyntheticEvent } from "react";
import { invalidText, isFirstInvalid, type FormControl } from "@/components/invalidText";
import { focusFirstErrorOfSubmitted } from "@/components/submittedForm";

export interface FieldControl {
  id: string;
  "aria-describedby": string | undefined;
  "aria-invalid": boolean | undefined;
}

interface Props {
  label: ReactNode;
  /** For a form on one line, whose placeholder says the same. */
  hidesLabel?: boolean;
  className?: string;
  help?: ReactNode;
  error?: string | undefined;
  /** Id of the control, for links to it. */
  id?: string;
  children: (control: FieldControl) => ReactNode;
}

/**
 * A label, its control, a sentence of help and the error: the given one, or what the browser finds when the form is
 * submitted, such as an empty field that is required. A new value removes the browser's. When the form was submitted and
 * refused, the focus goes to its first error.
 */
export function Field({ label, hidesLabel = false, className = "", help, error: givenError, id, children }: Props) {
  const [invalid, setInvalid] = useState<string>();
  const error = givenError ?? invalid;
  const generatedId = useId();
  const controlId = id ?? generatedId;
  const helpId = `${controlId}-help`;
  const errorId = `${controlId}-error`;
  const container = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (givenError !== undefined) focusFirstErrorOfSubmitted(formOf(container.current));
  }, [givenError]);
  const described = [error === undefined ? null : errorId, help === undefined ? null : helpId].filter(Boolean).join(" ");
  return (
    <div
      ref={container}
      className={`flex min-w-0 flex-col gap-1 ${className}`}
      onInvalidCapture={showInvalid}
      onChangeCapture={() => {
        setInvalid(undefined);
      }}
    >
      <label htmlFor={controlId} className={hidesLabel ? "sr-only" : "font-medium"}>
        {label}
      </label>
      {children({
        id: controlId,
        "aria-describedby": described === "" ? undefined : described,
        "aria-invalid": error === undefined ? undefined : true,
      })}
      {error !== undefined && (
        <p id={errorId} className="text-small text-bad">
          {error}
        </p>
      )}
      {help !== undefined && (
        <p id={helpId} className="text-small text-soft">
          {help}
        </p>
      )}
    </div>
  );

  function showInvalid(event: SyntheticEvent): void {
    event.preventDefault(); // the browser's own message, and its way to the field
    const control = event.target as FormControl;
    setInvalid(invalidText(control));
    if (isFirstInvalid(control)) control.focus();
  }
}

/** The form of a field's control, which may be elsewhere in the page. */
function formOf(container: HTMLElement | null): HTMLFormElement | null {
  return container?.querySelector<FormControl>("input, select, textarea")?.form ?? null;
}

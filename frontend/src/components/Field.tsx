import { useId, type ReactNode } from "react";

export interface FieldControl {
  id: string;
  "aria-describedby": string | undefined;
  "aria-invalid": boolean | undefined;
}

interface Props {
  label: ReactNode;
  help?: ReactNode;
  error?: string | undefined;
  /** Id of the control, for links to it. */
  id?: string;
  children: (control: FieldControl) => ReactNode;
}

/** A label, its control, a sentence of help and the error. */
export function Field({ label, help, error, id, children }: Props) {
  const generatedId = useId();
  const controlId = id ?? generatedId;
  const helpId = `${controlId}-help`;
  const errorId = `${controlId}-error`;
  const described = [error === undefined ? null : errorId, help === undefined ? null : helpId].filter(Boolean).join(" ");
  return (
    <div className="flex min-w-0 flex-col gap-1">
      <label htmlFor={controlId} className="font-medium">
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
}

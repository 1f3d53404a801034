import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";

interface Props {
  /** Title of the button and the dialog. */
  title: string;
  consequence: string;
  /** Label and type of the input. */
  label: string;
  type: "text" | "password";
  /** Whether what was typed may be sent. */
  isReady: (typed: string) => boolean;
  onDelete: (typed: string) => Promise<void>;
}

/** A deletion that a person confirms by typing. */
export function DeleteWithText({ title, consequence, label, type, isReady, onDelete }: Props) {
  const [isOpen, setIsOpen] = useState(false);
  const [typed, setTyped] = useState("");
  const deletion = useMutation({ mutationFn: onDelete });
  return (
    <>
      <Button
        variant="danger"
        onClick={() => {
          setIsOpen(true);
        }}
      >
        {title}…
      </Button>
      {isOpen && (
        <ConfirmDialog
          title={`${title}?`}
          consequence={consequence}
          confirmLabel={title}
          cancelLabel="Cancel"
          busy={deletion.isPending}
          error={deletion.error}
          ready={isReady(typed)}
          onConfirm={() => {
            deletion.mutate(typed);
          }}
          onClose={() => {
            deletion.reset();
            setTyped("");
            setIsOpen(false);
          }}
        >
          <Field label={label}>
            {(control) => (
              <TextInput
                {...control}
                type={type}
                autoComplete={type === "password" ? "current-password" : "off"}
                value={typed}
                onChange={(event) => {
                  setTyped(event.target.value);
                }}
              />
            )}
          </Field>
        </ConfirmDialog>
      )}
    </>
  );
}

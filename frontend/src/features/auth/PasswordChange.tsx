import { useState } from "react";
import { Button } from "@/components/Button";
import { PasswordDialog } from "@/features/auth/PasswordDialog";

/** A button that opens the form for a new password, and says when it was changed. */
export function PasswordChange({ email }: { email: string }) {
  const [isOpen, setOpen] = useState(false);
  const [wasChanged, setChanged] = useState(false);
  return (
    <div className="flex flex-wrap items-center gap-3">
      <Button
        onClick={() => {
          setChanged(false);
          setOpen(true);
        }}
      >
        Change password…
      </Button>
      <span role="status" className="text-soft">
        {wasChanged && "Password changed. Other browsers are signed out."}
      </span>
      {isOpen && (
        <PasswordDialog
          email={email}
          onChanged={() => {
            setOpen(false);
            setChanged(true);
          }}
          onClose={() => {
            setOpen(false);
          }}
        />
      )}
    </div>
  );
}

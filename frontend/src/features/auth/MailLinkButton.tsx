import { useMutation } from "@tanstack/react-query";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { mailSignInLink } from "@/features/auth/queries";

/** Requests a sign-in link by email. The server does not reveal whether the address has an account. */
export function MailLinkButton({ email, sent }: { email: string; sent: string }) {
  const { mutate, isPending, isSuccess, error } = useMutation({ mutationFn: mailSignInLink });
  return (
    <div className="flex flex-col items-start gap-2">
      <Button
        disabled={isPending || email === ""}
        onClick={() => {
          mutate(email);
        }}
      >
        Email me a sign-in link
      </Button>
      {isSuccess && <p role="status">{sent}</p>}
      {error !== null && <ErrorNote error={error} />}
    </div>
  );
}

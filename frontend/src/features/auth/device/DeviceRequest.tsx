import { useMutation, useQuery } from "@tanstack/react-query";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { decideDeviceLogin, deviceRequestQuery } from "@/features/auth/device/queries";

interface Props {
  code: string;
  /** The person wants to enter another code. */
  onOther: () => void;
}

const SCOPES = {
  read: "view everything you can view",
  submit: "view everything you can view, upload data, start and change runs",
  manage: "do everything you can do",
} as const;

/** What the program with a code asks for, which the person compares, and approves or denies. */
export function DeviceRequest({ code, onOther }: Props) {
  const { data: asked, error } = useQuery(deviceRequestQuery(code));
  const decide = useMutation({ mutationFn: (approve: boolean) => decideDeviceLogin(code, approve) });
  if (decide.isSuccess) {
    return <p role="status">{decide.variables ? "Approved. You can close this page and return to the program." : "Denied. The program gets no access."}</p>;
  }
  if (error !== null) {
    return (
      <div className="flex flex-col items-start gap-4">
        <ErrorNote error={error} />
        <Button onClick={onOther}>Enter another code</Button>
      </div>
    );
  }
  if (asked === undefined) return <p>Looking up the code.</p>;
  return (
    <div className="flex flex-col gap-4">
      <p>
        Check that the program shows <strong className="font-mono whitespace-nowrap">{asked.user_code}</strong>. Approve it only if you have just started it yourself.
      </p>
      <dl className="grid grid-cols-[auto_1fr] items-baseline gap-x-6 gap-y-1">
        <dt className="text-soft">Program</dt>
        <dd className="min-w-0 break-words">{asked.client}</dd>
        <dt className="text-soft">Address</dt>
        <dd className="min-w-0 break-all">{asked.address}</dd>
        <dt className="text-soft">It can</dt>
        <dd>
          {SCOPES[asked.scope]} <span className="text-soft">(scope {asked.scope})</span>
        </dd>
        <dt className="text-soft">Expires</dt>
        <dd>{asked.lifetime_days === null ? "never; revoke its key on the Settings page" : `after ${asked.lifetime_days} days`}</dd>
      </dl>
      {decide.error !== null && <ErrorNote error={decide.error} />}
      <div className="flex gap-2">
        <Button
          variant="primary"
          disabled={decide.isPending}
          onClick={() => {
            decide.mutate(true);
          }}
        >
          Approve
        </Button>
        <Button
          disabled={decide.isPending}
          onClick={() => {
            decide.mutate(false);
          }}
        >
          Deny
        </Button>
      </div>
    </div>
  );
}

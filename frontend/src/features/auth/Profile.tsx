import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import type { Me } from "@/api/types";
import { Email } from "@/components/Email";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { MailLinkButton } from "@/features/auth/MailLinkButton";
import { PasswordChange } from "@/features/auth/PasswordChange";
import { ProfileName } from "@/features/auth/ProfileName";
import { healthQuery } from "@/lib/healthQuery";
import { applyTheme, storedTheme, THEME_LABELS, type Theme } from "@/lib/theme";

interface Props {
  me: Me;
  /** How else the person signs in. */
  children?: ReactNode;
}

/** Who is signed in, and how the pages look in this browser. */
export function Profile({ me, children }: Props) {
  const { data: health } = useQuery(healthQuery);
  const [theme, setTheme] = useState(storedTheme);
  return (
    <div className="panel p-4">
      <div className="flex min-w-0 flex-col gap-4">
        <div className="tablet:w-96">
          <ProfileName key={me.name} me={me} />
        </div>
        <dl className="grid grid-cols-[auto_1fr] items-baseline gap-x-6 gap-y-1">
          <dt className="text-soft">Email</dt>
          <dd className="min-w-0 wrap-break-word">
            <Email address={me.email} />
          </dd>
          {me.site_admin && (
            <>
              <dt className="text-soft">Role</dt>
              <dd>Site admin: manages nodes and the limits of all teams</dd>
            </>
          )}
        </dl>
        <div className="flex min-w-0 flex-col gap-4 tablet:w-96">
          {!me.email_verified && (
            <div className="flex flex-col gap-2">
              <p>Your email address has not been confirmed. Until you confirm it, you cannot join another team.</p>
              {health?.sends_mail === false ? (
                <p className="text-soft">Ask the operator for a sign-in link, and open it in this browser to confirm the address.</p>
              ) : (
                <MailLinkButton email={me.email} sent="A link is on its way. Open it in this browser to confirm the address." />
              )}
            </div>
          )}
          {me.has_password ? <PasswordChange email={me.email} /> : <p className="text-soft">Your account has no password.</p>}
          {children}
          <div className="w-48 max-tablet:w-full">
            <Field label="Theme" help="In this browser.">
              {(control) => (
                <Select
                  {...control}
                  value={theme}
                  onChange={(event) => {
                    const next = event.target.value as Theme;
                    applyTheme(next);
                    setTheme(next);
                  }}
                >
                  {Object.entries(THEME_LABELS).map(([value, label]) => (
                    <option key={value} value={value}>
                      {label}
                    </option>
                  ))}
                </Select>
              )}
            </Field>
          </div>
        </div>
      </div>
    </div>
  );
}

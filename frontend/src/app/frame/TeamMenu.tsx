import { useNavigate } from "@tanstack/react-router";
import { ChevronDown, Users } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { useState } from "react";
import type { Me } from "@/api/types";
import { useSignOut } from "@/app/useSignOut";
import { ErrorToast } from "@/components/ErrorToast";
import { Menu } from "@/components/Menu";
import { MenuItem } from "@/components/MenuItem";
import { applyTheme, storedTheme, THEME_LABELS } from "@/lib/theme";

/** The current team, and the user's menu: teams, theme, sign out. */
export function TeamMenu({ team, me }: { team: string; me: Me }) {
  const [theme, setTheme] = useState(storedTheme);
  const navigate = useNavigate();
  const signOut = useSignOut();
  return (
    <>
      <Menu
        trigger={
          <button
            type="button"
            className="flex h-8 min-w-0 items-center gap-1 rounded-box px-2 font-semibold hover:bg-raised max-tablet:h-12 max-tablet:max-w-18 max-tablet:flex-col max-tablet:justify-center max-tablet:gap-0.5 max-tablet:px-1 max-tablet:text-small max-tablet:font-normal max-tablet:text-soft"
          >
            <Users aria-hidden size={16} className="shrink-0 tablet:hidden" />
            <span className="max-w-full truncate">{me.teams.find(({ slug }) => slug === team)?.name ?? team}</span>
            <ChevronDown aria-hidden size={14} className="shrink-0 max-tablet:hidden" />
          </button>
        }
      >
        {me.teams.map(({ slug, name }) => (
          <MenuItem
            key={slug}
            checked={slug === team}
            onSelect={() => void navigate({ to: "/$team/runs", params: { team: slug } })}
          >
            {name}
          </MenuItem>
        ))}
        <DropdownMenu.Separator className="my-1 border-t" />
        {(["system", "light", "dark"] as const).map((choice) => (
          <MenuItem
            key={choice}
            checked={choice === theme}
            onSelect={() => {
              applyTheme(choice);
              setTheme(choice);
            }}
          >
            {THEME_LABELS[choice]}
          </MenuItem>
        ))}
        <DropdownMenu.Separator className="my-1 border-t" />
        <MenuItem
          onSelect={() => {
            signOut.mutate();
          }}
        >
          Sign out {me.name}
        </MenuItem>
      </Menu>
      {signOut.error !== null && <ErrorToast error={signOut.error} onClose={signOut.reset} />}
    </>
  );
}

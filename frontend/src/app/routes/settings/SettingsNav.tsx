import { Link } from "@tanstack/react-router";
import { SETTINGS_GROUPS, type SettingsPage } from "@/app/routes/settings/settingsPages";

/** Links to the pages of the settings, by whom they concern. */
export function SettingsNav({ team, pages }: { team: string; pages: readonly SettingsPage[] }) {
  return (
    <nav aria-label="Settings" className="mb-6 flex flex-col gap-x-8 gap-y-4 max-desk:flex-row max-desk:flex-wrap desk:sticky desk:top-6 desk:self-start">
      {SETTINGS_GROUPS.map((group) => {
        const links = pages.filter((page) => page.group === group);
        if (links.length === 0) return null;
        return (
          <div key={group}>
            <p className="text-small font-medium text-soft">{group}</p>
            <ul>
              {links.map(({ id, title }) => (
                <li key={id}>
                  <Link
                    to="/$team/settings/$page"
                    params={{ team, page: id }}
                    className="inline-block text-accent underline-offset-2 hover:underline max-tablet:leading-10"
                    activeProps={{ className: "font-semibold" }}
                  >
                    {title}
                  </Link>
                </li>
              ))}
            </ul>
          </div>
        );
      })}
    </nav>
  );
}

import { Link, useNavigate } from "@tanstack/react-router";
import { SETTINGS_GROUPS, type SettingsPage } from "@/app/routes/settings/settingsPages";
import { Select } from "@/components/Select";

interface Props {
  team: string;
  /** The id of the page that is open. */
  page: string;
  pages: readonly SettingsPage[];
}

/** The pages of the settings by whom they concern: links on a wide screen, a select where these would fill the screen. */
export function SettingsNav({ team, page, pages }: Props) {
  const navigate = useNavigate();
  const groups = SETTINGS_GROUPS.map((name) => ({ name, members: pages.filter(({ group }) => group === name) })).filter(({ members }) => members.length > 0);
  return (
    <nav aria-label="Settings" className="max-desk:mb-6 tablet:max-desk:max-w-80 desk:sticky desk:top-6 desk:self-start">
      <div className="desk:hidden">
        <Select aria-label="Settings page" value={page} onChange={(event) => void navigate({ to: "/$team/settings/$page", params: { team, page: event.target.value } })}>
          {groups.map(({ name, members }) => (
            <optgroup key={name} label={name}>
              {members.map(({ id, title }) => (
                <option key={id} value={id}>
                  {title}
                </option>
              ))}
            </optgroup>
          ))}
        </Select>
      </div>
      <div className="flex flex-col gap-4 max-desk:hidden">
        {groups.map(({ name, members }) => (
          <div key={name}>
            <p className="px-2 pb-1 text-small font-medium text-soft">{name}</p>
            <ul>
              {members.map(({ id, title }) => (
                <li key={id}>
                  <Link
                    to="/$team/settings/$page"
                    params={{ team, page: id }}
                    className="block rounded-box px-2 py-1 hover:bg-raised data-[status=active]:bg-raised data-[status=active]:font-medium"
                  >
                    {title}
                  </Link>
                </li>
              ))}
            </ul>
          </div>
        ))}
      </div>
    </nav>
  );
}

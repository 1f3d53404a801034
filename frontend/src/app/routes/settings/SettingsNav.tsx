import { SETTINGS_GROUPS, type SettingsSection } from "@/app/routes/settings/settingsSections";

/** Links to the sections of the page, by whom they concern. */
export function SettingsNav({ sections }: { sections: readonly SettingsSection[] }) {
  return (
    <nav aria-label="Settings" className="mb-6 flex flex-col gap-x-8 gap-y-4 max-desk:flex-row max-desk:flex-wrap desk:sticky desk:top-6 desk:self-start">
      {SETTINGS_GROUPS.map((group) => {
        const links = sections.filter((section) => section.group === group);
        if (links.length === 0) return null;
        return (
          <div key={group}>
            <p className="text-small font-medium text-soft">{group}</p>
            <ul>
              {links.map(({ id, title }) => (
                <li key={id}>
                  <a href={`#${id}`} className="inline-block text-accent underline-offset-2 hover:underline max-tablet:leading-10">
                    {title}
                  </a>
                </li>
              ))}
            </ul>
          </div>
        );
      })}
    </nav>
  );
}

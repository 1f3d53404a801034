import type { Me } from "@/api/types";

/** Whom a setting concerns. */
export const SETTINGS_GROUPS = ["You", "Team", "Site"] as const;

export interface SettingsPage {
  id: string;
  title: string;
  group: (typeof SETTINGS_GROUPS)[number];
  /** Who sees it, if not everybody. */
  readers?: "owners" | "site admins";
  /** The headings of its sections, by their ids. */
  sections: Readonly<Record<string, string>>;
}

const PAGES = [
  { id: "profile", title: "Profile", group: "You", sections: { profile: "Profile", "delete-account": "Delete your account" } },
  { id: "notices", title: "Notices", group: "You", sections: { notices: "Notices" } },
  { id: "keys", title: "Keys and browsers", group: "You", sections: { keys: "API keys", browsers: "Signed-in browsers" } },
  { id: "members", title: "Members", group: "Team", sections: { members: "Members", invitations: "Invitations" } },
  { id: "service-accounts", title: "Service accounts", group: "Team", readers: "owners", sections: { "service-accounts": "Service accounts" } },
  { id: "limits", title: "Limits", group: "Team", sections: { limits: "Team limits", "member-limits": "Member limits" } },
  { id: "webhooks", title: "Webhooks", group: "Team", readers: "owners", sections: { webhooks: "Webhooks" } },
  { id: "audit", title: "Audit log", group: "Team", readers: "owners", sections: { audit: "Audit log" } },
  { id: "delete-team", title: "Delete the team", group: "Team", readers: "owners", sections: { "delete-team": "Delete the team" } },
  { id: "new-team", title: "New team", group: "Site", readers: "site admins", sections: { "new-team": "New team" } },
  { id: "site-audit", title: "Site audit log", group: "Site", readers: "site admins", sections: { "site-audit": "Site audit log" } },
] as const satisfies readonly SettingsPage[];

type SectionsOf<Page> = Page extends { sections: infer Sections } ? keyof Sections : never;

export type SettingsSectionId = SectionsOf<(typeof PAGES)[number]>;

/** The page that opens first. */
export const FIRST_PAGE = PAGES[0].id;

/** The pages that a person sees in a team. */
export function visiblePages(me: Me, team: string): SettingsPage[] {
  const isOwner = me.teams.some(({ slug, role }) => slug === team && role === "owner");
  const pages: readonly SettingsPage[] = PAGES;
  return pages.filter(({ readers }) => readers === undefined || (readers === "owners" ? isOwner : me.site_admin));
}

/** The heading of a section on a page; undefined if another page has it. */
export function sectionTitle(page: string, id: SettingsSectionId): string | undefined {
  const pages: readonly SettingsPage[] = PAGES;
  return pages.find((one) => one.id === page)?.sections[id];
}

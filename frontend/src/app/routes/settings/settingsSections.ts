import type { Me } from "@/api/types";

/** Whom a setting concerns. */
export const SETTINGS_GROUPS = ["You", "Team", "Site"] as const;

export interface SettingsSection {
  id: string;
  title: string;
  group: (typeof SETTINGS_GROUPS)[number];
  /** Who sees it, if not everybody. */
  readers?: "owners" | "site admins";
}

const SECTIONS = [
  { id: "profile", title: "Profile", group: "You" },
  { id: "notices", title: "Notices", group: "You" },
  { id: "keys", title: "API keys", group: "You" },
  { id: "browsers", title: "Signed-in browsers", group: "You" },
  { id: "delete-account", title: "Delete your account", group: "You" },
  { id: "members", title: "Members", group: "Team" },
  { id: "invitations", title: "Invitations", group: "Team", readers: "owners" },
  { id: "service-accounts", title: "Service accounts", group: "Team", readers: "owners" },
  { id: "quota", title: "Quota", group: "Team" },
  { id: "limits", title: "Limits", group: "Team" },
  { id: "webhooks", title: "Webhooks", group: "Team", readers: "owners" },
  { id: "audit", title: "Audit log", group: "Team", readers: "owners" },
  { id: "delete-team", title: "Delete the team", group: "Team", readers: "owners" },
  { id: "new-team", title: "New team", group: "Site", readers: "site admins" },
  { id: "site-audit", title: "Audit log of the site", group: "Site", readers: "site admins" },
] as const satisfies readonly SettingsSection[];

export type SettingsSectionId = (typeof SECTIONS)[number]["id"];

/** The sections that a person sees on the page of a team. */
export function visibleSections(me: Me, team: string): SettingsSection[] {
  const isOwner = me.teams.some(({ slug, role }) => slug === team && role === "owner");
  const sections: readonly SettingsSection[] = SECTIONS;
  return sections.filter(({ readers }) => readers === undefined || (readers === "owners" ? isOwner : me.site_admin));
}

/** The heading of a section. */
export function sectionTitle(id: SettingsSectionId): string {
  return SECTIONS.find((section) => section.id === id)?.title ?? "";
}

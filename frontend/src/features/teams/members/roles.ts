import type { Member } from "@/api/types";

/** What each role may do, the least first. */
export const ROLE_LABELS: Record<Member["role"], string> = {
  viewer: "viewer: can view everything",
  editor: "editor: can view everything, upload data, start and change runs",
  owner: "owner: can do all of that and manage people",
};

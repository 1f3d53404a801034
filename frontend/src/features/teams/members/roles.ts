import type { Member } from "@/api/types";

/** What each role may do, the least first. */
export const ROLE_LABELS: Record<Member["role"], string> = {
  viewer: "viewer: can see everything",
  editor: "editor: can also upload data and train",
  owner: "owner: can also manage people",
};

import type { TotalStorage } from "@/api/types";

/** What a team or a member stores, without what is reserved. */
export function usedBytes({ uploads_bytes: uploads, prepared_bytes: prepared, checkpoint_bytes: checkpoints }: TotalStorage): number {
  return uploads + prepared + checkpoints;
}

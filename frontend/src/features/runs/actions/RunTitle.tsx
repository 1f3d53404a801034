import type { Run } from "@/api/types";
import { ShortId } from "@/components/ShortId";

/** Which run a dialog is about. */
export function RunTitle({ run }: { run: Run }) {
  return (
    <>
      {run.name}<ShortId id={run.id} />
    </>
  );
}

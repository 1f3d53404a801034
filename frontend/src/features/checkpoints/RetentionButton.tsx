import { useState } from "react";
import { Button } from "@/components/Button";
import { ForEditors } from "@/components/ForEditors";
import { RetentionDialog } from "@/features/checkpoints/RetentionDialog";

interface Props {
  team: string;
  /** Of these runs; null: of all the team's. */
  runs: string[] | null;
}

export function RetentionButton({ team, runs }: Props) {
  const [open, setOpen] = useState(false);
  return (
    <ForEditors>
      <Button
        onClick={() => {
          setOpen(true);
        }}
      >
        Thin out
      </Button>
      {open && (
        <RetentionDialog
          team={team}
          runs={runs}
          onClose={() => {
            setOpen(false);
          }}
        />
      )}
    </ForEditors>
  );
}

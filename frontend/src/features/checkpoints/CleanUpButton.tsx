import { useState } from "react";
import { Button } from "@/components/Button";
import { ForEditors } from "@/components/ForEditors";
import { CleanUpDialog } from "@/features/checkpoints/CleanUpDialog";

interface Props {
  team: string;
  /** Null: all of the team's runs. */
  runs: string[] | null;
}

export function CleanUpButton({ team, runs }: Props) {
  const [open, setOpen] = useState(false);
  return (
    <ForEditors>
      <Button
        onClick={() => {
          setOpen(true);
        }}
      >
        Clean up…
      </Button>
      {open && (
        <CleanUpDialog
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

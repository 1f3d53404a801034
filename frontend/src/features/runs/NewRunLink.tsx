import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { buttonClass } from "@/components/Button";
import { ForEditors } from "@/components/ForEditors";
import { useHotkeys } from "@/lib/hooks/useHotkeys";
import { useCanEdit } from "@/lib/permissions";

/** Opens the form for a new run, also with the key `n`. Viewers have neither. */
export function NewRunLink({ team }: { team: string }) {
  const navigate = useNavigate();
  const canEdit = useCanEdit();
  const keys = useMemo((): Record<string, () => void> => {
    const start = () => void navigate({ to: "/$team/runs/new", params: { team } });
    return canEdit ? { n: start } : {};
  }, [canEdit, navigate, team]);
  useHotkeys(keys);
  return (
    <ForEditors>
      <Link to="/$team/runs/new" params={{ team }} className={buttonClass("primary")}>
        New run
      </Link>
    </ForEditors>
  );
}

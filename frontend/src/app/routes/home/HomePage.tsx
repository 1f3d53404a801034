import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useMemo } from "react";
import { HomeRuns } from "@/app/routes/home/HomeRuns";
import { HomeSection } from "@/app/routes/home/HomeSection";
import { Boundary } from "@/components/Boundary";
import { buttonClass } from "@/components/Button";
import { ForEditors } from "@/components/ForEditors";
import { TitleRow } from "@/components/TitleRow";
import { QuotaMeters } from "@/features/teams/usage/QuotaMeters";
import { useHotkeys } from "@/lib/hooks/useHotkeys";
import { useCanEdit } from "@/lib/permissions";

/** Active and waiting runs, failures since the last visit, and the quota. */
export function HomePage() {
  const { team } = useParams({ from: "/$team" });
  const navigate = useNavigate();
  const canEdit = useCanEdit();
  const keys = useMemo((): Record<string, () => void> => {
    const start = () => void navigate({ to: "/$team/runs/new", params: { team } });
    return canEdit ? { n: start } : {};
  }, [canEdit, navigate, team]);
  useHotkeys(keys);
  return (
    <>
      <TitleRow
        title="Home"
        actions={
          <ForEditors>
            <Link to="/$team/runs/new" params={{ team }} className={buttonClass("primary")}>
              New run
            </Link>
          </ForEditors>
        }
      />
      <div className="grid grid-cols-[minmax(0,1fr)_320px] items-start gap-6 max-desk:grid-cols-1">
        <Boundary>
          <HomeRuns />
        </Boundary>
        <HomeSection title="Quota">
          <Boundary>
            <QuotaMeters team={team} />
          </Boundary>
        </HomeSection>
      </div>
    </>
  );
}

import { useParams } from "@tanstack/react-router";
import { HomeRuns } from "@/app/routes/home/HomeRuns";
import { HomeSection } from "@/app/routes/home/HomeSection";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { TitleRow } from "@/components/TitleRow";
import { NewRunLink } from "@/features/runs/NewRunLink";
import { QuotaMeters } from "@/features/teams/usage/QuotaMeters";

/** What runs, waits, failed and finished, and the slots and storage in use. */
export function HomePage() {
  const { team } = useParams({ from: "/$team" });
  return (
    <>
      <TitleRow title="Home" actions={<NewRunLink team={team} />} />
      <div className="grid grid-cols-[minmax(0,1fr)_320px] items-start gap-6 max-desk:grid-cols-1">
        <AsyncBoundary>
          <HomeRuns />
        </AsyncBoundary>
        <HomeSection title="Usage">
          <AsyncBoundary>
            <QuotaMeters team={team} />
          </AsyncBoundary>
        </HomeSection>
      </div>
    </>
  );
}

import { Link } from "@tanstack/react-router";
import { Activity, Database, Server, Settings } from "lucide-react";
import { TeamMenu } from "@/app/TeamMenu";
import type { Me } from "@/api/types";

interface Props {
  team: string;
  me: Me;
}

const ITEM =
  "flex h-8 items-center gap-2 rounded-box px-2 text-soft hover:text-text data-[status=active]:bg-raised data-[status=active]:font-medium data-[status=active]:text-text max-desk:h-12 max-desk:flex-col max-desk:justify-center max-desk:gap-0.5 max-desk:text-small max-tablet:flex-1";

/** Left rail; icons with words on smaller screens, a bar at the bottom on phones. */
export function Rail({ team, me }: Props) {
  return (
    <nav
      aria-label="Main"
      className="sticky top-0 z-10 flex h-dvh w-44 shrink-0 flex-col gap-3 border-r bg-bg p-2 pt-3 max-desk:w-24 max-tablet:fixed max-tablet:top-auto max-tablet:bottom-0 max-tablet:h-16 max-tablet:w-full max-tablet:flex-row max-tablet:border-t max-tablet:border-r-0 max-tablet:pt-2"
    >
      <TeamMenu team={team} me={me} />
      <div className="flex flex-col gap-px max-tablet:flex-1 max-tablet:flex-row">
        <Link to="/$team/runs" params={{ team }} className={ITEM}>
          <Activity aria-hidden size={16} className="hidden max-desk:block" />
          Runs
        </Link>
        <Link to="/$team/datasets" params={{ team }} className={ITEM}>
          <Database aria-hidden size={16} className="hidden max-desk:block" />
          Datasets
        </Link>
        {me.site_admin && (
          <Link to="/$team/nodes" params={{ team }} className={ITEM}>
            <Server aria-hidden size={16} className="hidden max-desk:block" />
            Nodes
          </Link>
        )}
        <Link to="/$team/settings" params={{ team }} className={ITEM}>
          <Settings aria-hidden size={16} className="hidden max-desk:block" />
          Settings
        </Link>
      </div>
    </nav>
  );
}

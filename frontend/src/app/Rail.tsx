import { Link, useNavigate } from "@tanstack/react-router";
import { Activity, ChartColumn, Database, Ellipsis, House, Save, Server, Settings, type LucideIcon } from "lucide-react";
import type { Me } from "@/api/types";
import { Keyboard } from "@/app/palette/Keyboard";
import { TeamMenu } from "@/app/TeamMenu";
import { Menu } from "@/components/Menu";
import { MenuItem } from "@/components/MenuItem";

interface Props {
  team: string;
  me: Me;
}

interface Page {
  to: "/$team" | "/$team/runs" | "/$team/datasets" | "/$team/checkpoints" | "/$team/nodes" | "/$team/usage" | "/$team/settings";
  word: string;
  Icon: LucideIcon;
  /** On phones it is in the menu of what is looked at less often. */
  more?: true;
  forSiteAdmin?: true;
}

const PAGES: readonly Page[] = [
  { to: "/$team", word: "Home", Icon: House },
  { to: "/$team/runs", word: "Runs", Icon: Activity },
  { to: "/$team/datasets", word: "Datasets", Icon: Database },
  { to: "/$team/checkpoints", word: "Checkpoints", Icon: Save, more: true },
  { to: "/$team/nodes", word: "Nodes", Icon: Server, more: true, forSiteAdmin: true },
  { to: "/$team/usage", word: "Usage", Icon: ChartColumn, more: true },
  { to: "/$team/settings", word: "Settings", Icon: Settings, more: true },
];

const ITEM =
  "flex h-8 items-center gap-2 rounded-box px-2 text-soft hover:text-text data-[status=active]:bg-raised data-[status=active]:font-medium data-[status=active]:text-text max-desk:h-12 max-desk:flex-col max-desk:justify-center max-desk:gap-0.5 max-desk:text-small max-tablet:flex-1 max-tablet:px-1";

/** Left rail; icons with words on smaller screens, a bar at the bottom on phones. */
export function Rail({ team, me }: Props) {
  const navigate = useNavigate();
  const pages = PAGES.filter(({ forSiteAdmin }) => forSiteAdmin !== true || me.site_admin);
  return (
    <nav
      aria-label="Main"
      className="sticky top-0 z-10 flex h-dvh w-44 shrink-0 flex-col gap-3 border-r bg-bg p-2 pt-3 max-desk:w-24 max-tablet:fixed max-tablet:top-auto max-tablet:bottom-0 max-tablet:h-16 max-tablet:w-full max-tablet:flex-row max-tablet:border-t max-tablet:border-r-0 max-tablet:pt-2"
    >
      <TeamMenu team={team} me={me} />
      <Keyboard team={team} me={me} />
      <div className="flex flex-col gap-px max-tablet:flex-1 max-tablet:flex-row">
        {pages.map(({ to, word, Icon, more }) => (
          <Link
            key={to}
            to={to}
            params={{ team }}
            activeOptions={{ exact: to === "/$team", includeSearch: false }}
            className={`${ITEM} ${more === true ? "max-tablet:hidden" : ""}`}
          >
            <Icon aria-hidden size={16} className="hidden max-desk:block" />
            {word}
          </Link>
        ))}
        <Menu
          trigger={
            <button type="button" className={`${ITEM} tablet:hidden`}>
              <Ellipsis aria-hidden size={16} />
              More
            </button>
          }
        >
          {pages
            .filter(({ more }) => more)
            .map(({ to, word }) => (
              <MenuItem key={to} onSelect={() => void navigate({ to, params: { team } })}>
                {word}
              </MenuItem>
            ))}
        </Menu>
      </div>
    </nav>
  );
}

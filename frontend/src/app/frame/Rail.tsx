import { Link, useMatchRoute, useNavigate } from "@tanstack/react-router";
import { Activity, Bell, ChartColumn, Database, Ellipsis, House, ListOrdered, Save, Server, Settings, type LucideIcon } from "lucide-react";
import type { Me } from "@/api/types";
import { KeyboardShortcuts } from "@/app/palette/KeyboardShortcuts";
import { TeamMenu } from "@/app/frame/TeamMenu";
import { Menu } from "@/components/Menu";
import { MenuItem } from "@/components/MenuItem";
import { UnreadCount } from "@/features/notices/UnreadCount";

interface Props {
  team: string;
  me: Me;
}

interface RailItem {
  to: "/$team" | "/$team/runs" | "/$team/queue" | "/$team/datasets" | "/$team/checkpoints" | "/$team/nodes" | "/$team/usage" | "/$team/notices" | "/$team/settings";
  label: string;
  Icon: LucideIcon;
  /** On phones it is in the More menu. */
  more?: true;
  adminOnly?: true;
}

const ITEMS: readonly RailItem[] = [
  { to: "/$team", label: "Home", Icon: House },
  { to: "/$team/runs", label: "Runs", Icon: Activity },
  { to: "/$team/queue", label: "Queue", Icon: ListOrdered, more: true },
  { to: "/$team/datasets", label: "Datasets", Icon: Database },
  { to: "/$team/checkpoints", label: "Checkpoints", Icon: Save, more: true },
  { to: "/$team/nodes", label: "Nodes", Icon: Server, more: true, adminOnly: true },
  { to: "/$team/usage", label: "Usage", Icon: ChartColumn, more: true },
  { to: "/$team/notices", label: "Notices", Icon: Bell },
  { to: "/$team/settings", label: "Settings", Icon: Settings, more: true },
];

const ITEM_CLASS =
  "relative flex h-8 items-center gap-2 rounded-box px-2 text-soft hover:text-text data-[status=active]:bg-raised data-[status=active]:font-medium data-[status=active]:text-text max-desk:h-12 max-desk:flex-col max-desk:justify-center max-desk:gap-0.5 max-desk:px-0.5 max-desk:text-small max-tablet:flex-1 max-tablet:px-1";

/** Navigation: a rail on the left, icons above their labels on smaller screens, a bar at the bottom on phones. */
export function Rail({ team, me }: Props) {
  const navigate = useNavigate();
  const matches = useMatchRoute();
  const pages = ITEMS.filter(({ adminOnly }) => adminOnly !== true || me.site_admin);
  const inMore = pages.filter(({ more }) => more);
  const isInMore = inMore.some(({ to }) => matches({ to, params: { team }, fuzzy: true }) !== false);
  return (
    <nav
      aria-label="Main"
      className="sticky top-0 z-10 flex h-dvh w-44 shrink-0 flex-col gap-3 border-r bg-bg p-2 pt-3 max-desk:w-24 max-desk:px-1 max-tablet:fixed max-tablet:top-auto max-tablet:bottom-0 max-tablet:h-16 max-tablet:w-full max-tablet:flex-row max-tablet:border-t max-tablet:border-r-0 max-tablet:pt-2"
    >
      <TeamMenu team={team} me={me} />
      <KeyboardShortcuts team={team} me={me} />
      <div className="flex flex-col gap-px max-tablet:flex-1 max-tablet:flex-row">
        {pages.map(({ to, label, Icon, more }) => (
          <Link
            key={to}
            to={to}
            params={{ team }}
            activeOptions={{ exact: to === "/$team", includeSearch: false }}
            className={`${ITEM_CLASS} ${more === true ? "max-tablet:hidden" : ""}`}
          >
            <Icon aria-hidden size={16} />
            {label}
            {to === "/$team/notices" && <UnreadCount />}
          </Link>
        ))}
        <Menu
          trigger={
            <button type="button" aria-current={isInMore ? "page" : undefined} className={`${ITEM_CLASS} tablet:hidden ${isInMore ? "bg-raised font-medium text-text!" : ""}`}>
              <Ellipsis aria-hidden size={16} />
              More
            </button>
          }
        >
          {inMore.map(({ to, label }) => (
            <MenuItem key={to} onSelect={() => void navigate({ to, params: { team } })}>
              {label}
            </MenuItem>
          ))}
        </Menu>
      </div>
    </nav>
  );
}

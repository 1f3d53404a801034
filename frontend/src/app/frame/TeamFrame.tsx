import { Outlet, useParams, useRouteContext } from "@tanstack/react-router";
import { Rail } from "@/app/frame/Rail";
import { NotFoundNote, PAGE_NOT_FOUND } from "@/components/NotFoundNote";
import { CanEdit } from "@/lib/permissions";

/** The frame around every team page; of a team that the person is not in, only a note. */
export function TeamFrame() {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const membership = me.teams.find(({ slug }) => slug === team);
  const railTeam = membership ?? me.teams[0];
  const canEdit = membership?.role !== "viewer";
  return (
    <CanEdit value={canEdit}>
      <div className="flex min-h-dvh max-tablet:flex-col-reverse">
        <a
          href="#content"
          className="absolute -top-12 left-2 z-30 rounded-box bg-accent px-3 py-2 text-on-accent focus:top-2"
        >
          Skip to content
        </a>
        {railTeam !== undefined && <Rail team={railTeam.slug} me={me} />}
        <main id="content" tabIndex={-1} className="min-w-0 flex-1 outline-none max-tablet:pb-16">
          <div className="max-w-[1440px] p-6 pt-4 max-tablet:p-4">
            {membership === undefined ? <NotFoundNote title={PAGE_NOT_FOUND}>There is no team “{team}”, or you are not in it.</NotFoundNote> : <Outlet />}
          </div>
        </main>
      </div>
    </CanEdit>
  );
}

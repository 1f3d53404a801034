import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { queryClient, session } from "@/app/queryClient";
import { CheckpointsPage } from "@/app/routes/CheckpointsPage";
import { ComparePage } from "@/app/routes/ComparePage";
import { DatasetPage } from "@/app/routes/DatasetPage";
import { DatasetsPage } from "@/app/routes/DatasetsPage";
import { HomePage } from "@/app/routes/HomePage";
import { LinkPage } from "@/app/routes/LinkPage";
import { NodesPage } from "@/app/routes/NodesPage";
import { NotFoundPage } from "@/app/routes/NotFoundPage";
import { RunPage } from "@/app/routes/RunPage";
import { RunsPage } from "@/app/routes/RunsPage";
import { SettingsPage } from "@/app/routes/SettingsPage";
import { SignInPage } from "@/app/routes/SignInPage";
import { UsagePage } from "@/app/routes/UsagePage";
import { NothingHere } from "@/app/NothingHere";
import { FrameError } from "@/app/FrameError";
import { Root } from "@/app/Root";
import { Shell } from "@/app/Shell";
import { ApiError } from "@/api/errors";
import { meQuery } from "@/features/auth/queries";
import { parseCheckpointFilter } from "@/features/checkpoints/queries";
import { parseTensorSearch } from "@/features/fp8/view";
import { parseCompare } from "@/features/metrics/compareView";
import { parsePhase, parseView } from "@/features/metrics/view";
import { parseLogSearch } from "@/features/runs/logSearch";
import { parseNewRunSearch } from "@/features/runs/newRunSearch";
import { parseRunsSearch } from "@/features/runs/runFilter";
import { parseUsageSearch } from "@/features/teams/usageView";
import { isRunTab } from "@/lib/runTabs";

const root = createRootRoute({ component: Root, notFoundComponent: NotFoundPage });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: async () => {
    const me = await signedIn("/");
    const team = me.teams[0];
    if (team !== undefined) throw redirect({ to: "/$team", params: { team: team.slug }, replace: true });
  },
  component: NotFoundPage,
  errorComponent: FrameError,
});

const signIn = createRoute({
  getParentRoute: () => root,
  path: "/sign-in",
  validateSearch: ({ next }: Record<string, unknown>): { next?: string } => (typeof next === "string" ? { next } : {}),
  component: SignInPage,
});

const link = createRoute({ getParentRoute: () => root, path: "/link/$token", component: LinkPage });

const team = createRoute({
  getParentRoute: () => root,
  path: "/$team",
  beforeLoad: async ({ location }) => ({ me: await signedIn(location.href) }),
  component: Shell,
  notFoundComponent: NothingHere,
  errorComponent: FrameError,
});

const teamHome = createRoute({ getParentRoute: () => team, path: "/", component: HomePage });

const runs = createRoute({ getParentRoute: () => team, path: "/runs", validateSearch: parseRunsSearch, component: RunsPage });

const newRun = createRoute({
  getParentRoute: () => team,
  path: "/runs/new",
  validateSearch: parseNewRunSearch,
  // The form and its reader of YAML come when somebody writes a run.
  component: lazyRouteComponent(() => import("@/app/routes/NewRunPage"), "NewRunPage"),
});

const run = createRoute({
  getParentRoute: () => team,
  path: "/runs/$runId",
  beforeLoad: ({ params }) => {
    if (!("tab" in params)) {
      throw redirect({ to: "/$team/runs/$runId/$tab", params: { ...params, tab: "overview" }, replace: true });
    }
  },
});

const runTab = createRoute({
  getParentRoute: () => team,
  path: "/runs/$runId/$tab",
  validateSearch: (search: Record<string, unknown>) => ({
    ...parseView(search),
    ...parsePhase(search),
    ...parseTensorSearch(search),
    ...parseLogSearch(search),
  }),
  beforeLoad: ({ params }) => {
    if (!isRunTab(params.tab)) {
      throw redirect({ to: "/$team/runs/$runId/$tab", params: { ...params, tab: "overview" }, replace: true });
    }
  },
  component: RunPage,
});

const checkpoints = createRoute({
  getParentRoute: () => team,
  path: "/checkpoints",
  validateSearch: parseCheckpointFilter,
  component: CheckpointsPage,
});
const compare = createRoute({ getParentRoute: () => team, path: "/compare", validateSearch: parseCompare, component: ComparePage });
const datasets = createRoute({ getParentRoute: () => team, path: "/datasets", component: DatasetsPage });
const dataset = createRoute({ getParentRoute: () => team, path: "/datasets/$datasetId", component: DatasetPage });
const nodes = createRoute({ getParentRoute: () => team, path: "/nodes", component: NodesPage });
const usage = createRoute({ getParentRoute: () => team, path: "/usage", validateSearch: parseUsageSearch, component: UsagePage });
const settings = createRoute({ getParentRoute: () => team, path: "/settings", component: SettingsPage });

const tree = root.addChildren([
  home,
  signIn,
  link,
  team.addChildren([teamHome, runs, newRun, run, runTab, compare, checkpoints, datasets, dataset, nodes, usage, settings]),
]);

export const router = createRouter({ routeTree: tree, defaultPreload: false, scrollRestoration: true });

session.onEnded = () => {
  const { pathname, href } = router.state.location;
  if (pathname === "/sign-in" || pathname.startsWith("/link/")) return;
  void router.navigate({ to: "/sign-in", search: { next: href } });
};

/** Who is signed in; leads to the sign-in page and back where nobody is. */
async function signedIn(next: string) {
  try {
    return await queryClient.query({ ...meQuery, staleTime: "static" });
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) throw redirect({ to: "/sign-in", search: { next } });
    throw error;
  }
}

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

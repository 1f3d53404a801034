import { createRootRoute, createRoute, createRouter, redirect } from "@tanstack/react-router";
import { queryClient, sessionEvents } from "@/app/queryClient";
import { HomePage } from "@/app/routes/home/HomePage";
import { NotFoundPage } from "@/app/routes/NotFoundPage";
import { RunsPage } from "@/app/routes/RunsPage";
import { FIRST_PAGE } from "@/app/routes/settings/settingsPages";
import { SignInPage } from "@/app/routes/SignInPage";
import { NotFound } from "@/app/frame/NotFound";
import { FrameError } from "@/app/frame/FrameError";
import { PageError } from "@/app/frame/PageError";
import { Root } from "@/app/frame/Root";
import { TeamFrame } from "@/app/frame/TeamFrame";
import { ApiError } from "@/api/errors";
import { lazyPage } from "@/app/lazyPage";
import { safeRedirect } from "@/app/safeRedirect";
import { takeProviderCallback } from "@/features/auth/providerCallback";
import { finishProviderSignIn, meQuery } from "@/features/auth/queries";
import { parseCheckpointFilter } from "@/features/checkpoints/queries";
import { datasetIdsNamed } from "@/features/datasets/queries";
import { parseTensorSearch } from "@/features/fp8/tensorSearch";
import { parseCompare } from "@/features/metrics/compare/compareView";
import { parseStepPart, parseView } from "@/features/metrics/charts/chartView";
import { parseEventFilter } from "@/features/runs/detail/eventFilter";
import { parseLogSearch } from "@/features/runs/log/logSearch";
import { parseNewRunSearch } from "@/features/runs/form/newRunSearch";
import { parseSampleSearch } from "@/features/runs/samples/sampleSteps";
import { runIdsNamed, runsQuery } from "@/features/runs/queries";
import { parseRunFilter, parseRunsSearch } from "@/features/runs/list/runFilter";
import { parseUsageSearch } from "@/features/teams/usage/usageView";
import { isRunTab } from "@/app/routes/run/tabNames";

// The home page and the list of runs are in the first bundle; other pages are loaded when opened.
const root = createRootRoute({ component: Root, notFoundComponent: NotFoundPage });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: async () => {
    const me = await requireUser("/");
    const team = me.teams[0];
    if (team !== undefined) throw redirect({ to: "/$team", params: { team: team.slug }, replace: true });
    return { me };
  },
  component: lazyPage(() => import("@/app/routes/NoTeamPage"), "NoTeamPage"),
  errorComponent: FrameError,
});

const signIn = createRoute({
  getParentRoute: () => root,
  path: "/sign-in",
  validateSearch: ({ next }: Record<string, unknown>): { next?: string } => (typeof next === "string" ? { next } : {}),
  beforeLoad: async ({ abortController }) => ({ refusal: await finishSignIn(abortController.signal) }),
  component: SignInPage,
});

const link = createRoute({ getParentRoute: () => root, path: "/link/$token", component: lazyPage(() => import("@/app/routes/LinkPage"), "LinkPage") });

const device = createRoute({
  getParentRoute: () => root,
  path: "/sign-in/device",
  validateSearch: ({ user_code }: Record<string, unknown>): { user_code?: string } => (typeof user_code === "string" ? { user_code } : {}),
  beforeLoad: async ({ location }) => ({ me: await requireUser(location.href) }),
  component: lazyPage(() => import("@/app/routes/DevicePage"), "DevicePage"),
  errorComponent: FrameError,
});

const team = createRoute({
  getParentRoute: () => root,
  path: "/$team",
  beforeLoad: async ({ location, params }) => {
    const me = await requireUser(location.href);
    // The person may have been added to the team a moment ago.
    const isMember = me.teams.some(({ slug }) => slug === params.team);
    return { me: isMember ? me : await queryClient.query({ ...meQuery, staleTime: 0 }) };
  },
  component: TeamFrame,
  notFoundComponent: NotFound,
  errorComponent: FrameError,
});

const teamHome = createRoute({ getParentRoute: () => team, path: "/", component: HomePage });

const runs = createRoute({
  getParentRoute: () => team,
  path: "/runs",
  validateSearch: parseRunsSearch,
  loaderDeps: ({ search }) => parseRunFilter({ ...search }),
  // Requested while the page renders.
  loader: ({ params, deps }) => {
    void queryClient.infiniteQuery({ ...runsQuery(params.team, deps), staleTime: "static" }).catch(() => undefined);
  },
  component: RunsPage,
});

const newRun = createRoute({
  getParentRoute: () => team,
  path: "/runs/new",
  validateSearch: parseNewRunSearch,
  component: lazyPage(() => import("@/app/routes/newRun/NewRunPage"), "NewRunPage"),
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
    ...parseStepPart(search),
    ...parseTensorSearch(search),
    ...parseLogSearch(search),
    ...parseSampleSearch(search),
    ...parseEventFilter(search),
  }),
  beforeLoad: async ({ params }) => {
    if (!isRunTab(params.tab)) {
      throw redirect({ to: "/$team/runs/$runId/$tab", params: { ...params, tab: "overview" }, replace: true });
    }
    const runId = await idOfOnlyName(params.runId, (name) => runIdsNamed(params.team, name));
    if (runId !== null) throw redirect({ to: "/$team/runs/$runId/$tab", params: { ...params, runId }, search: true, hash: true, replace: true });
  },
  component: lazyPage(() => import("@/app/routes/run/RunPage"), "RunPage"),
});

const checkpoints = createRoute({
  getParentRoute: () => team,
  path: "/checkpoints",
  validateSearch: parseCheckpointFilter,
  component: lazyPage(() => import("@/app/routes/CheckpointsPage"), "CheckpointsPage"),
});
const compare = createRoute({ getParentRoute: () => team, path: "/compare", validateSearch: parseCompare, component: lazyPage(() => import("@/app/routes/ComparePage"), "ComparePage") });
const datasets = createRoute({ getParentRoute: () => team, path: "/datasets", component: lazyPage(() => import("@/app/routes/DatasetsPage"), "DatasetsPage") });
const dataset = createRoute({
  getParentRoute: () => team,
  path: "/datasets/$datasetId",
  beforeLoad: async ({ params }) => {
    const datasetId = await idOfOnlyName(params.datasetId, (name) => datasetIdsNamed(params.team, name));
    if (datasetId !== null) throw redirect({ to: "/$team/datasets/$datasetId", params: { ...params, datasetId }, search: true, hash: true, replace: true });
  },
  component: lazyPage(() => import("@/app/routes/DatasetPage"), "DatasetPage"),
});
const queue = createRoute({ getParentRoute: () => team, path: "/queue", component: lazyPage(() => import("@/app/routes/QueuePage"), "QueuePage") });
const nodes = createRoute({ getParentRoute: () => team, path: "/nodes", component: lazyPage(() => import("@/app/routes/NodesPage"), "NodesPage") });
const usage = createRoute({ getParentRoute: () => team, path: "/usage", validateSearch: parseUsageSearch, component: lazyPage(() => import("@/app/routes/UsagePage"), "UsagePage") });
const notices = createRoute({ getParentRoute: () => team, path: "/notices", component: lazyPage(() => import("@/app/routes/NoticesPage"), "NoticesPage") });
const settings = createRoute({
  getParentRoute: () => team,
  path: "/settings",
  beforeLoad: ({ params }) => {
    if (!("page" in params)) throw redirect({ to: "/$team/settings/$page", params: { ...params, page: FIRST_PAGE }, replace: true });
  },
});
const settingsPage = createRoute({
  getParentRoute: () => team,
  path: "/settings/$page",
  component: lazyPage(() => import("@/app/routes/SettingsPage"), "SettingsPage"),
});

const tree = root.addChildren([
  home,
  signIn,
  link,
  device,
  team.addChildren([teamHome, runs, newRun, run, runTab, compare, checkpoints, queue, datasets, dataset, nodes, usage, notices, settings, settingsPage]),
]);

export const router = createRouter({ routeTree: tree, defaultPreload: false, defaultErrorComponent: PageError, scrollRestoration: true });

sessionEvents.onEnded = () => {
  const { pathname, href } = router.state.location;
  if (pathname === "/sign-in" || pathname.startsWith("/link/")) return;
  void router.navigate({ to: "/sign-in", search: { next: href } });
};

type ProviderOutcome = { signedIn: Awaited<ReturnType<typeof finishProviderSignIn>> } | { refusal: unknown };

let finishing: Promise<ProviderOutcome> | null = null;

/** Signs in the person whom the identity provider sent back, and opens the page that they wanted; otherwise returns why not. */
async function finishSignIn(signal: AbortSignal): Promise<unknown> {
  const callback = takeProviderCallback();
  if (callback !== null) {
    finishing = finishProviderSignIn(callback).then(
      (signedIn) => ({ signedIn }),
      (refusal: unknown) => ({ refusal }),
    );
  }
  if (finishing === null) return null;
  const outcome = await finishing;
  // A load that another one has replaced leaves the outcome to that one.
  if (!signal.aborted) finishing = null;
  if ("refusal" in outcome) return outcome.refusal;
  queryClient.clear();
  queryClient.setQueryData(meQuery.queryKey, outcome.signedIn.me);
  throw redirect({ href: safeRedirect(outcome.signedIn.next), replace: true });
}

const ID = /^(run|ds)_[a-z2-7]{26}$/;

/** The id of the run or dataset that an address gives by name. Null if the text is an id, or if the lookup fails or finds several or none: then the page itself explains. */
async function idOfOnlyName(text: string, idsNamed: (name: string) => Promise<string[]>): Promise<string | null> {
  if (ID.test(text)) return null;
  const [id, other] = await idsNamed(text).catch((): string[] => []);
  return id === undefined || other !== undefined || id === text ? null : id;
}

/** The signed-in user; redirects to the sign-in page and back if there is none. */
async function requireUser(next: string) {
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

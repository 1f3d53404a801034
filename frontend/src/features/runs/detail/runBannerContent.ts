/** The text of a run's banner: what happened and what to do next, and the log that explains it. */
import type { Run } from "@/api/types";
import { duration, secondsBetween } from "@/lib/format";

/** Where a suggestion leads. */
export type BannerLink = "logs" | "checkpoints" | "dataset" | "like" | "fork" | "nodes" | "queue";

export interface Banner {
  tone: "bad" | "warn" | "plain";
  /** What happened. */
  message: string;
  /** What comes next, or what to do. */
  next: string;
  links: BannerLink[];
}

export function bannerOf(run: Run, now: number): Banner | null {
  switch (run.state) {
    case "queued":
      return plainBanner(run.sentence, "It starts automatically.", ["queue"]);
    case "retry_wait":
      return { tone: "warn", message: run.sentence, next: retryText(run, now), links: ["logs"] };
    case "stopping":
      return plainBanner(run.sentence, "");
    case "paused":
      return run.summary.step === 0
        ? plainBanner(run.sentence, "It has no slots. Resume it to queue it again.")
        : plainBanner(run.sentence, "Its slots are free. Resuming continues from there, bit for bit.", ["checkpoints"]);
    case "cancelled":
      return plainBanner(run.sentence, run.summary.step > 0 ? "Its metrics and checkpoints are kept. Fork it to continue from one." : "", ["like"]);
    case "failed":
      return { tone: "bad", message: run.sentence, next: "", links: failureLinks(run) };
    case "succeeded":
      return successBanner(run);
    default:
      return suspectBanner(run);
  }
}

function plainBanner(message: string, next: string, links: BannerLink[] = []): Banner {
  return { tone: "plain", message, next, links };
}

const WEIGHTS_TEXT = "The weights can be downloaded.";

/** The tiles show the figures of the run's sentence, but not that its loss rose. */
function successBanner({ sentence }: Run): Banner {
  const links: BannerLink[] = ["checkpoints", "fork", "like"];
  const rise = /^loss \S+ \(it rose from [^)]+\)/.exec(sentence)?.[0];
  return rise === undefined ? plainBanner(WEIGHTS_TEXT, "", links) : plainBanner(`${rise}.`, WEIGHTS_TEXT, links);
}

function suspectBanner({ suspect_seconds: secondsSilent, nodes }: Run): Banner | null {
  if (secondsSilent === null || secondsSilent === undefined) return null;
  const where = nodes.length === 1 ? `node ${nodes[0] ?? ""}` : "one of its nodes";
  const message = `No contact with ${where} for ${duration(secondsSilent)}.`;
  return { tone: "warn", message, next: "The run continues. If the node stays silent, it recovers from its newest checkpoint.", links: ["nodes"] };
}

function retryText({ retry_at: at }: Run, now: number): string {
  if (at === null || at === undefined) return "";
  const left = (new Date(at).getTime() - now) / 1_000;
  return left < 1 ? "It resumes in a moment." : `It resumes in ${duration(secondsBetween(new Date(now).toISOString(), at))}.`;
}

/** End reasons that the logs explain best. */
const EXPLAINED_IN_LOGS: ReadonlySet<string> = new Set(["bad_job", "crashed", "start_timeout", "export_failed", "poison", "diverged", "too_many_attempts"]);

/** The log of the rank, or of the export, that the sentence names; undefined if it names none. */
export function logFileOf({ reason, sentence }: Pick<Run, "reason" | "sentence">): string | undefined {
  if (reason === "export_failed") return "export.log";
  const rank = /\brank (\d+)\b/i.exec(sentence)?.[1];
  return rank === undefined ? undefined : `rank-${rank}.log`;
}

/** What a link to a log says. */
export function logLabel(file: string | undefined): string {
  if (file === undefined) return "View logs";
  return file === "export.log" ? "View export.log" : `View log of ${file.replace(/^rank-(\d+)\.log$/, "rank $1")}`;
}

function failureLinks({ reason, summary }: Run): BannerLink[] {
  if (reason === "data") return ["dataset"];
  const links: BannerLink[] = reason !== null && reason !== undefined && EXPLAINED_IN_LOGS.has(reason) ? ["logs"] : [];
  return [...links, "like", ...(summary.step > 0 ? (["checkpoints"] as const) : [])];
}

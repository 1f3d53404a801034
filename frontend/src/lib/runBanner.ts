/** What happened to a run and what to do next, in words; numbers are told elsewhere on its page. */
import type { Run } from "@/api/types";
import { duration, secondsBetween } from "@/lib/format";

/** Where the next step leads. */
export type BannerLink = "logs" | "checkpoints" | "dataset" | "like" | "fork" | "nodes";

export interface Banner {
  tone: "bad" | "warn" | "plain";
  /** What happened. */
  words: string;
  /** What comes, or what to do. */
  next: string;
  links: BannerLink[];
}

export function bannerOf(run: Run, now: number): Banner | null {
  switch (run.state) {
    case "queued":
      return plain(run.sentence, "It starts by itself.", ["nodes"]);
    case "retry_wait":
      return { tone: "warn", words: run.sentence, next: again(run, now), links: ["logs"] };
    case "stopping":
      return plain(run.sentence, "");
    case "paused":
      return plain(run.sentence, "Its slots are free. Resume goes on from there, bit for bit.", ["checkpoints"]);
    case "cancelled":
      return plain(run.sentence, run.summary.step > 0 ? "Its numbers and checkpoints stay. Fork goes on from one." : "", ["like"]);
    case "failed":
      return { tone: "bad", words: run.sentence, next: "", links: failedLinks(run) };
    case "succeeded":
      return plain(`Done: ${run.sentence}.`, "Its weights can be downloaded.", ["checkpoints"]);
    default:
      return suspicion(run);
  }
}

function plain(words: string, next: string, links: BannerLink[] = []): Banner {
  return { tone: "plain", words, next, links };
}

function suspicion({ suspect_seconds: silence, nodes }: Run): Banner | null {
  if (silence === null || silence === undefined) return null;
  const where = nodes.length === 1 ? `node ${nodes[0] ?? ""}` : "one of its nodes";
  const words = `No word from ${where} for ${duration(silence)}.`;
  return { tone: "warn", words, next: "The run goes on unless it stays silent; then it recovers from its newest checkpoint.", links: ["nodes"] };
}

function again({ retry_at: at }: Run, now: number): string {
  if (at === null || at === undefined) return "";
  const left = (new Date(at).getTime() - now) / 1_000;
  return left < 1 ? "It goes on in a moment." : `It goes on in ${duration(secondsBetween(new Date(now).toISOString(), at))}.`;
}

/** What its own numbers and words do not show. */
const READ_IN_LOGS: ReadonlySet<string> = new Set(["bad_job", "crashed", "start_timeout", "export_failed", "poison", "diverged"]);

function failedLinks({ reason, summary }: Run): BannerLink[] {
  if (reason === "data") return ["dataset"];
  const links: BannerLink[] = reason !== null && reason !== undefined && READ_IN_LOGS.has(reason) ? ["logs"] : [];
  return [...links, "like", ...(summary.step > 0 ? (["checkpoints"] as const) : [])];
}

import { useQueryClient } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { Search } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import type { Me, Run } from "@/api/types";
import { KeysDialog } from "@/app/palette/KeysDialog";
import { Palette } from "@/app/palette/Palette";
import { pagesOf, type Command } from "@/app/palette/commands";
import { ErrorNote } from "@/components/ErrorNote";
import { runQuery } from "@/features/runs/queries";
import { canPause, pauseRun, resumeRun } from "@/features/runs/verbs";
import { keySequence } from "@/lib/keySequence";
import { useMayEdit } from "@/lib/mayEdit";
import { applyTheme } from "@/lib/theme";
import { isTyping } from "@/lib/useHotkeys";

/** The keys that hold on every page of a team, and the palette that does the same by words. */
export function Keyboard({ team, me }: { team: string; me: Me }) {
  const [open, setOpen] = useState<"palette" | "keys" | null>(null);
  const [refusal, setRefusal] = useState<unknown>(null);
  const { runId } = useParams({ strict: false });
  const mayEdit = useMayEdit();
  const navigate = useNavigate();
  const client = useQueryClient();
  const close = () => {
    setOpen(null);
  };

  const byKey = useMemo((): Record<string, () => void> => {
    const pages = pagesOf(me).map(({ key, to }) => [key, () => void navigate({ to, params: { team } })] as const);
    const start = () => void navigate({ to: "/$team/runs/new", params: { team } });
    const help = () => {
      setOpen("keys");
    };
    return { ...Object.fromEntries(pages), ...(mayEdit ? { n: start } : {}), "?": help };
  }, [me, mayEdit, navigate, team]);

  useEffect(() => {
    const keys = keySequence(Object.keys(byKey));
    function onKey(event: KeyboardEvent): void {
      if ((event.ctrlKey || event.metaKey) && event.key === "k") {
        event.preventDefault();
        setOpen("palette");
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Shift" || isTyping(event.target)) return;
      const pressed = keys.press(event.key, event.timeStamp);
      if (pressed === "none") return;
      event.preventDefault();
      // Before the page's own keys: the second of a pair is none of them.
      event.stopImmediatePropagation();
      if (pressed !== "waiting") byKey[pressed.command]?.();
    }
    window.addEventListener("keydown", onKey, { capture: true });
    return () => {
      window.removeEventListener("keydown", onKey, { capture: true });
    };
  }, [byKey]);

  return (
    <>
      <button
        type="button"
        aria-keyshortcuts="Control+K Meta+K"
        className="flex h-8 items-center gap-2 rounded-box border border-control bg-surface px-2 text-small text-soft hover:text-text max-desk:justify-center max-tablet:h-12 max-tablet:flex-col max-tablet:justify-center max-tablet:gap-0.5 max-tablet:border-0 max-tablet:bg-bg max-tablet:px-1"
        onClick={() => {
          setOpen("palette");
        }}
      >
        <Search aria-hidden size={16} />
        Find
        <kbd className="ml-auto font-sans max-desk:hidden">Ctrl K</kbd>
      </button>
      {open === "keys" && <KeysDialog me={me} onClose={close} />}
      {open === "palette" && (
        <Palette
          team={team}
          commands={commands()}
          onOpenRun={({ id }) => void navigate({ to: "/$team/runs/$runId/$tab", params: { team, runId: id, tab: "overview" } })}
          onOpenDataset={(datasetId) => void navigate({ to: "/$team/datasets/$datasetId", params: { team, datasetId } })}
          onClose={close}
        />
      )}
      {refusal !== null && (
        <div className="fixed right-4 bottom-4 z-30 flex max-w-md items-start gap-2 bg-surface shadow-float">
          <ErrorNote error={refusal} />
          <button
            type="button"
            className="p-2 text-soft hover:text-text"
            onClick={() => {
              setRefusal(null);
            }}
          >
            Close
          </button>
        </div>
      )}
    </>
  );

  function commands(): Command[] {
    const pages = pagesOf(me).map(
      ({ key, to, words }): Command => ({ id: key, group: "Pages", words, note: key, run: () => void navigate({ to, params: { team } }) }),
    );
    const compare: Command = { id: "compare", group: "Pages", words: "Compare runs", run: () => void navigate({ to: "/$team/compare", params: { team } }) };
    return [...pages, compare, ...(mayEdit ? [start(), ...ofRun()] : []), ...themes(), help()];
  }

  function start(): Command {
    return { id: "n", group: "Do", words: "New run", note: "n", also: "start train", run: () => byKey["n"]?.() };
  }

  /** What can be done with the run of this page. */
  function ofRun(): Command[] {
    const run = runId === undefined ? undefined : client.getQueryData<Run>(runQuery(team, runId).queryKey);
    if (run === undefined) return [];
    const copy = (how: "like" | "fork") => () => void navigate({ to: "/$team/runs/new", params: { team }, search: { [how]: run.id } });
    const turn = run.state === "paused" ? resumeRun : pauseRun;
    const hold: Command = {
      id: "hold",
      group: "Do",
      words: `${run.state === "paused" ? "Resume" : "Pause"} ${run.name}`,
      run: () => {
        void turn(team, run.id).then((answer) => client.setQueryData(runQuery(team, run.id).queryKey, answer), setRefusal);
      },
    };
    return [
      ...(run.state === "paused" || canPause(run) ? [hold] : []),
      { id: "like", group: "Do", words: `New run like ${run.name}`, also: "clone copy", run: copy("like") },
      ...(run.summary.step > 0 ? [{ id: "fork", group: "Do" as const, words: `Fork ${run.name} from a checkpoint`, run: copy("fork") }] : []),
    ];
  }

  function themes(): Command[] {
    const words = { light: "Light colours", dark: "Dark colours", system: "Colours as the system" } as const;
    return (["light", "dark", "system"] as const).map((theme) => ({
      id: theme,
      group: "Do",
      words: words[theme],
      also: "theme mode",
      run: () => {
        applyTheme(theme);
      },
    }));
  }

  function help(): Command {
    return { id: "?", group: "Do", words: "All keys", note: "?", also: "help shortcuts", run: () => byKey["?"]?.() };
  }
}

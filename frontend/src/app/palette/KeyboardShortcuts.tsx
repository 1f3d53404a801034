import { useQueryClient } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { Search } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import type { Me, Run } from "@/api/types";
import { ShortcutsDialog } from "@/app/palette/ShortcutsDialog";
import { CommandPalette } from "@/app/palette/CommandPalette";
import { pagesOf, type Command } from "@/app/palette/commands";
import { ErrorToast } from "@/components/ErrorToast";
import { runQuery, storeRun } from "@/features/runs/queries";
import { canPause, pauseRun, resumeRun } from "@/features/runs/actions/runRequests";
import { keySequence } from "@/app/palette/keySequence";
import { useCanEdit } from "@/lib/permissions";
import { applyTheme } from "@/lib/theme";
import { isTyping } from "@/lib/hooks/useHotkeys";

/** The keyboard shortcuts of every team page, and the command palette. */
export function KeyboardShortcuts({ team, me }: { team: string; me: Me }) {
  const [open, setOpen] = useState<"palette" | "keys" | null>(null);
  const [error, setError] = useState<unknown>(null);
  const { runId } = useParams({ strict: false });
  const canEdit = useCanEdit();
  const navigate = useNavigate();
  const client = useQueryClient();
  const close = () => {
    setOpen(null);
  };

  const actionByKey = useMemo((): Record<string, () => void> => {
    const pages = pagesOf(me).map(({ key, to }) => [key, () => void navigate({ to, params: { team } })] as const);
    const newRunCommand = () => void navigate({ to: "/$team/runs/new", params: { team } });
    const helpCommand = () => {
      setOpen("keys");
    };
    return { ...Object.fromEntries(pages), ...(canEdit ? { n: newRunCommand } : {}), "?": helpCommand };
  }, [me, canEdit, navigate, team]);

  useEffect(() => {
    const keys = keySequence(Object.keys(actionByKey));
    function onKey(event: KeyboardEvent): void {
      if ((event.ctrlKey || event.metaKey) && event.key === "k") {
        event.preventDefault();
        setOpen("palette");
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Shift" || isTyping(event.target)) return;
      const match = keys.press(event.key, event.timeStamp);
      if (match === "none") return;
      event.preventDefault();
      // Runs before the page's own shortcuts, so that the second key of a pair does not trigger one.
      event.stopImmediatePropagation();
      if (match !== "waiting") actionByKey[match.command]?.();
    }
    window.addEventListener("keydown", onKey, { capture: true });
    return () => {
      window.removeEventListener("keydown", onKey, { capture: true });
    };
  }, [actionByKey]);

  return (
    <>
      <button
        type="button"
        aria-keyshortcuts="Control+K Meta+K"
        className="flex h-8 items-center gap-2 rounded-box border border-control bg-surface px-2 text-small text-soft hover:text-text max-desk:justify-center max-desk:gap-1 max-desk:px-0.5 max-tablet:h-12 max-tablet:flex-col max-tablet:justify-center max-tablet:gap-0.5 max-tablet:border-0 max-tablet:bg-bg max-tablet:px-1"
        onClick={() => {
          setOpen("palette");
        }}
      >
        <Search aria-hidden size={16} className="shrink-0" />
        Search
        <kbd className="ml-auto font-sans max-desk:hidden">Ctrl K</kbd>
      </button>
      {open === "keys" && <ShortcutsDialog me={me} onClose={close} />}
      {open === "palette" && (
        <CommandPalette
          team={team}
          commands={commands()}
          onOpenRun={({ id }) => void navigate({ to: "/$team/runs/$runId/$tab", params: { team, runId: id, tab: "overview" } })}
          onOpenDataset={(datasetId) => void navigate({ to: "/$team/datasets/$datasetId", params: { team, datasetId } })}
          onClose={close}
        />
      )}
      {error !== null && (
        <ErrorToast
          error={error}
          onClose={() => {
            setError(null);
          }}
        />
      )}
    </>
  );

  function commands(): Command[] {
    const pages = pagesOf(me).map(
      ({ key, to, label }): Command => ({ id: key, group: "Pages", label, hint: key, run: () => void navigate({ to, params: { team } }) }),
    );
    const compare: Command = { id: "compare", group: "Pages", label: "Compare runs", run: () => void navigate({ to: "/$team/compare", params: { team } }) };
    return [...pages, compare, ...(canEdit ? [newRunCommand(), ...runCommands()] : []), ...themeCommands(), helpCommand()];
  }

  function newRunCommand(): Command {
    return { id: "n", group: "Actions", label: "New run", hint: "n", keywords: "start train", run: () => actionByKey["n"]?.() };
  }

  /** Actions on the run of this page. */
  function runCommands(): Command[] {
    const run = runId === undefined ? undefined : client.getQueryData<Run>(runQuery(team, runId).queryKey);
    if (run === undefined) return [];
    const copy = (how: "like" | "fork") => () => void navigate({ to: "/$team/runs/new", params: { team }, search: { [how]: run.id } });
    const toggle = run.state === "paused" ? resumeRun : pauseRun;
    const toggleCommand: Command = {
      id: "hold",
      group: "Actions",
      label: `${run.state === "paused" ? "Resume" : "Pause"} ${run.name}`,
      run: () => {
        void toggle(team, run.id)
          .then((changed) => storeRun(client, team, changed))
          .catch(setError);
      },
    };
    return [
      ...(run.state === "paused" || canPause(run) ? [toggleCommand] : []),
      { id: "like", group: "Actions", label: `Clone ${run.name}`, keywords: "new run like copy duplicate", run: copy("like") },
      ...(run.summary.step > 0 ? [{ id: "fork", group: "Actions" as const, label: `Fork ${run.name} from a checkpoint`, run: copy("fork") }] : []),
    ];
  }

  function themeCommands(): Command[] {
    const labels = { light: "Light theme", dark: "Dark theme", system: "System theme" } as const;
    return (["light", "dark", "system"] as const).map((theme) => ({
      id: theme,
      group: "Actions",
      label: labels[theme],
      keywords: "theme mode",
      run: () => {
        applyTheme(theme);
      },
    }));
  }

  function helpCommand(): Command {
    return { id: "?", group: "Actions", label: "Keyboard shortcuts", hint: "?", keywords: "help shortcuts", run: () => actionByKey["?"]?.() };
  }
}

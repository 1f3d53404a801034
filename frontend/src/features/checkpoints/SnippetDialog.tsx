import type { Checkpoint } from "@/api/types";
import { Button } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { Dialog } from "@/components/Dialog";
import { archiveUrl } from "@/features/checkpoints/queries";
import { curlSnippet, fileName, pythonSnippet } from "@/features/checkpoints/checkpointText";
import { count } from "@/lib/format";

interface Props {
  team: string;
  checkpoint: Checkpoint;
  onClose: () => void;
}

/** How to download a checkpoint without a browser. */
export function SnippetDialog({ team, checkpoint, onClose }: Props) {
  const server = location.origin;
  const name = fileName(checkpoint);
  const curl = curlSnippet(server + archiveUrl(team, checkpoint.run, checkpoint.id), `${name}.tar`);
  const python = pythonSnippet(server, team, checkpoint, name);
  return (
    <Dialog title={`Download step ${count(checkpoint.step)} with curl or Python`} onClose={onClose} actions={<Button onClick={onClose}>Close</Button>}>
      <p>Both read your API key from TRAINWRIGHT_KEY. Create a key in Settings.</p>
      <Snippet title="curl: one .tar" text={curl} />
      <Snippet title="Python: files in a folder, each verified; interrupted downloads resume" text={python} />
    </Dialog>
  );
}

function Snippet({ title, text }: { title: string; text: string }) {
  return (
    <section className="flex min-w-0 flex-col items-start gap-2">
      <h3 className="font-medium text-text">{title}</h3>
      <pre role="region" aria-label={title} className="w-full rounded-box bg-raised p-2 font-mono text-mono whitespace-pre-wrap wrap-anywhere text-text">
        {text}
      </pre>
      <CopyButton label="Copy" text={text} />
    </section>
  );
}

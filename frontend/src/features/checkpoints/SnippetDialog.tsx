import type { Checkpoint } from "@/api/types";
import { Button } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { Dialog } from "@/components/Dialog";
import { archiveUrl } from "@/features/checkpoints/queries";
import { curlSnippet, fileName, pythonSnippet } from "@/features/checkpoints/words";
import { count } from "@/lib/format";

interface Props {
  team: string;
  checkpoint: Checkpoint;
  onClose: () => void;
}

/** How a machine without a browser gets a checkpoint. */
export function SnippetDialog({ team, checkpoint, onClose }: Props) {
  const server = location.origin;
  const name = fileName(checkpoint);
  const curl = curlSnippet(server + archiveUrl(team, checkpoint.run, checkpoint.id), `${name}.tar`);
  const python = pythonSnippet(server, team, checkpoint, name);
  return (
    <Dialog title={`Step ${count(checkpoint.step)} by curl or Python`} onClose={onClose} actions={<Button onClick={onClose}>Close</Button>}>
      <p>Both read your key from TRAINWRIGHT_KEY; Settings makes one.</p>
      <Snippet title="curl: one .tar" text={curl} />
      <Snippet title="Python: files in a folder, each checked, and gone on with where it broke off" text={python} />
    </Dialog>
  );
}

function Snippet({ title, text }: { title: string; text: string }) {
  return (
    <section className="flex min-w-0 flex-col items-start gap-2">
      <h3 className="font-medium text-text">{title}</h3>
      <pre tabIndex={0} role="region" aria-label={title} className="w-full overflow-x-auto rounded-box bg-raised p-2 font-mono text-mono text-text">
        {text}
      </pre>
      <CopyButton words="Copy" text={text} />
    </section>
  );
}

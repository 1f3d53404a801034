import type { Me } from "@/api/types";
import { shortcutsOf } from "@/app/palette/commands";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { useCanEdit } from "@/lib/permissions";

/** Lists every keyboard shortcut. */
export function ShortcutsDialog({ me, onClose }: { me: Me; onClose: () => void }) {
  const canEdit = useCanEdit();
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose} actions={<Button onClick={onClose}>Close</Button>}>
      {shortcutsOf(me, canEdit).map(({ context, keys }) => (
        <section key={context}>
          <h3 className="mb-1 font-medium text-text">{context}</h3>
          <dl className="grid grid-cols-[120px_1fr] gap-y-1">
            {keys.map(([key, description]) => (
              <div key={key} className="contents">
                <dt>
                  <kbd className="rounded-box border border-control px-1 font-sans text-text">{key}</kbd>
                </dt>
                <dd>{description}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </Dialog>
  );
}

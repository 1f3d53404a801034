import type { Me } from "@/api/types";
import { keysOf } from "@/app/palette/commands";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { useMayEdit } from "@/lib/mayEdit";

/** Every key that does something. */
export function KeysDialog({ me, onClose }: { me: Me; onClose: () => void }) {
  const mayEdit = useMayEdit();
  return (
    <Dialog title="Keys" onClose={onClose} actions={<Button onClick={onClose}>Close</Button>}>
      {keysOf(me, mayEdit).map(({ where, keys }) => (
        <section key={where}>
          <h3 className="mb-1 font-medium text-text">{where}</h3>
          <dl className="grid grid-cols-[120px_1fr] gap-y-1">
            {keys.map(([key, words]) => (
              <div key={key} className="contents">
                <dt>
                  <kbd className="rounded-box border border-control px-1 font-sans text-text">{key}</kbd>
                </dt>
                <dd>{words}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </Dialog>
  );
}

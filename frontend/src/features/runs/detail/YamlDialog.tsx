import { Button } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { Dialog } from "@/components/Dialog";
import type { Json } from "@/features/runs/spec/specFields";
import { writeYaml } from "@/features/runs/spec/specYaml";

/** A run's configuration as the form and the command line read it. */
export function YamlDialog({ spec, onClose }: { spec: Record<string, Json>; onClose: () => void }) {
  const text = writeYaml(spec);
  return (
    <Dialog
      wide
      title="Configuration as YAML"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Close</Button>
          <CopyButton label="Copy as YAML" text={text} />
        </>
      }
    >
      <pre role="region" aria-label="YAML" tabIndex={0} className="max-h-[60vh] overflow-auto rounded-box bg-raised p-3 font-mono text-mono text-text">
        {text}
      </pre>
    </Dialog>
  );
}

import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { copyText } from "@/lib/copyText";

/** Monospaced text that is copied on click. */
export function Copyable({ text, label }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const Icon = copied ? Check : Copy;
  return (
    <button
      type="button"
      title={copied ? "Copied" : "Copy"}
      aria-label={`Copy ${label ?? text}`}
      className="inline-flex max-w-full items-center gap-1.5 rounded-box text-left font-mono text-mono hover:text-accent max-tablet:min-h-11 max-tablet:min-w-11"
      onClick={() => {
        void copyText(text).then(() => {
          setCopied(true);
        });
      }}
    >
      <span className="min-w-0 break-all">{label ?? text}</span>
      <Icon aria-hidden size={13} className="shrink-0" />
    </button>
  );
}

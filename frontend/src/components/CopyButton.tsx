import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/Button";
import { copyText } from "@/lib/copyText";

/** Copies a longer text that is not shown. */
export function CopyButton({ label, text }: { label: string; text: string | (() => string) }) {
  const [copied, setCopied] = useState(false);
  const Icon = copied ? Check : Copy;
  return (
    <Button
      onClick={() => {
        void copyText(typeof text === "string" ? text : text()).then(() => {
          setCopied(true);
        });
      }}
    >
      <Icon aria-hidden size={14} />
      {copied ? "Copied" : label}
    </Button>
  );
}

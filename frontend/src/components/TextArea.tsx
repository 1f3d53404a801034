import type { ComponentProps } from "react";

export function TextArea({ className = "", ...rest }: ComponentProps<"textarea">) {
  return <textarea className={`control w-full min-w-0 resize-y px-2 py-1.5 aria-invalid:border-bad ${className}`} {...rest} />;
}

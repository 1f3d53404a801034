import type { ComponentProps } from "react";

export const inputClass = "control h-8 w-full min-w-0 px-2 aria-invalid:border-bad max-tablet:h-11";

export function TextInput({ className = "", ...rest }: ComponentProps<"input">) {
  return <input className={`${inputClass} ${className}`} {...rest} />;
}

import type { ButtonHTMLAttributes } from "react";

type Look = "primary" | "plain" | "danger" | "quiet";

const base =
  "inline-flex h-8 shrink-0 items-center justify-center gap-2 rounded-box px-3 font-medium whitespace-nowrap transition-colors duration-100 disabled:opacity-50 max-tablet:h-11";

const looks: Record<Look, string> = {
  primary: "bg-accent text-on-accent enabled:hover:brightness-110",
  plain: "control enabled:hover:bg-raised",
  danger: "border border-bad bg-surface text-bad enabled:hover:bg-raised",
  quiet: "text-soft enabled:hover:bg-raised enabled:hover:text-text",
};

/** The classes of a button, for links that look like one. */
export function buttonClass(look: Look = "plain", extra = ""): string {
  return `${base} ${looks[look].replaceAll("enabled:", "")} ${extra}`;
}

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: Look;
}

export function Button({ look = "plain", type = "button", className = "", ...rest }: Props) {
  return <button type={type} className={`${base} ${looks[look]} ${className}`} {...rest} />;
}

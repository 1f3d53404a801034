import type { ButtonHTMLAttributes } from "react";

type Variant = "primary" | "plain" | "danger" | "quiet";

const baseClass =
  "inline-flex h-8 shrink-0 items-center justify-center gap-2 rounded-box px-3 font-medium whitespace-nowrap transition-colors duration-100 disabled:opacity-50 max-tablet:h-11";

const variantClasses: Record<Variant, string> = {
  primary: "bg-accent text-on-accent enabled:hover:brightness-110",
  plain: "control enabled:hover:bg-raised",
  danger: "border border-bad bg-surface text-bad enabled:hover:bg-raised",
  quiet: "text-soft enabled:hover:bg-raised enabled:hover:text-text",
};

/** The classes of a button, for links styled as buttons. */
export function buttonClass(variant: Variant = "plain", extra = ""): string {
  return `${baseClass} ${variantClasses[variant].replaceAll("enabled:", "")} ${extra}`;
}

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  variant?: Variant;
}

export function Button({ variant = "plain", type = "button", className = "", ...rest }: Props) {
  return <button type={type} className={`${baseClass} ${variantClasses[variant]} ${className}`} {...rest} />;
}

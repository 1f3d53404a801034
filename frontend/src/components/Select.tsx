import { ChevronDown } from "lucide-react";
import type { SelectHTMLAttributes } from "react";
import { inputClass } from "@/components/TextInput";

/** The browser's native select, for good support on phones, by keyboard and by screen readers. */
export function Select({ className = "", children, ...rest }: SelectHTMLAttributes<HTMLSelectElement>) {
  return (
    <span className="relative block">
      <select className={`${inputClass} appearance-none pr-8 ${className}`} {...rest}>
        {children}
      </select>
      <ChevronDown aria-hidden size={14} className="pointer-events-none absolute top-1/2 right-2.5 -translate-y-1/2 text-soft" />
    </span>
  );
}

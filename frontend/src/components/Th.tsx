import type { ThHTMLAttributes } from "react";

export function Th({ className = "", ...rest }: ThHTMLAttributes<HTMLTableCellElement>) {
  return (
    <th
      scope="col"
      className={`px-3 text-small font-medium whitespace-nowrap text-soft first:pl-4 last:pr-4 ${className}`}
      {...rest}
    />
  );
}

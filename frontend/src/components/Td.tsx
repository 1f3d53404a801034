import type { TdHTMLAttributes } from "react";

export function Td({ className = "", ...rest }: TdHTMLAttributes<HTMLTableCellElement>) {
  return <td className={`h-8 px-3 py-1 first:pl-4 last:pr-4 max-tablet:h-11 ${className}`} {...rest} />;
}

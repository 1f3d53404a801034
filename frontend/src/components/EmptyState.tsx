import type { ReactNode } from "react";

/** Shown for an empty list: says that it is empty and what to do. */
export function EmptyState({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="panel flex flex-col items-start gap-3 px-6 py-10">
      <p className="font-medium">{title}</p>
      {children !== undefined && <div className="flex max-w-2xl flex-col items-start gap-3 text-soft">{children}</div>}
    </div>
  );
}

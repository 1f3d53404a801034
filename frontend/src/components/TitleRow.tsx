import type { ReactNode } from "react";

/** The top of a page: where you are, how it stands, and at most one main button. */
export function TitleRow({ title, children, actions }: { title: ReactNode; children?: ReactNode; actions?: ReactNode }) {
  return (
    <header className="mb-4 flex min-h-8 flex-wrap items-center gap-x-3 gap-y-2">
      <h1 className="min-w-0 text-title font-semibold break-words">{title}</h1>
      {children}
      {actions !== undefined && <div className="ml-auto flex flex-wrap items-center gap-3">{actions}</div>}
    </header>
  );
}

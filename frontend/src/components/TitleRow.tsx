import type { ReactNode } from "react";

interface Props {
  title: string;
  /** Link to the list that this page is one of. */
  parent?: ReactNode;
  children?: ReactNode;
  actions?: ReactNode;
}

/** The top of a page: where you are, how it stands, and at most one main button. */
export function TitleRow({ title, parent, children, actions }: Props) {
  return (
    <header className="mb-4 flex min-h-8 flex-wrap items-center gap-x-3 gap-y-2">
      <div className="flex min-w-0 flex-wrap text-title font-semibold">
        {parent !== undefined && (
          <nav aria-label="Breadcrumb" className="whitespace-pre text-soft">
            {parent} /{" "}
          </nav>
        )}
        <h1 className="min-w-0 break-words">{title}</h1>
      </div>
      {children}
      {actions !== undefined && <div className="ml-auto flex flex-wrap items-center gap-3">{actions}</div>}
    </header>
  );
}

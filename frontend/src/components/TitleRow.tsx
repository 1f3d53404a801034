import { useParams } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { PageTitle } from "@/components/PageTitle";

interface Props {
  title: string;
  /** Title of the browser tab, if it differs from the page title and team. */
  tabTitle?: string | undefined;
  /** Link to the parent list. */
  parent?: ReactNode;
  children?: ReactNode;
  actions?: ReactNode;
}

/** The top of a page: where you are, its status, and at most one primary button. A title has at most two lines; hover shows all of a longer one. */
export function TitleRow({ title, tabTitle, parent, children, actions }: Props) {
  const { team } = useParams({ strict: false });
  return (
    <header className="mb-4 flex min-h-8 flex-wrap items-start gap-x-3 gap-y-2">
      <PageTitle>{tabTitle ?? (team === undefined ? title : `${title} · ${team}`)}</PageTitle>
      <div className="flex min-h-8 min-w-72 flex-1 flex-wrap items-center gap-x-3 gap-y-1 max-tablet:contents">
        <div
          className={`flex min-w-0 text-title font-semibold max-tablet:min-w-40 max-tablet:flex-1 max-tablet:flex-wrap ${actions === undefined ? "" : "max-tablet:min-h-11 max-tablet:content-center"}`}
        >
          {parent !== undefined && (
            <nav aria-label="Breadcrumb" className="whitespace-pre text-soft">
              {parent} /{" "}
            </nav>
          )}
          <h1 className="line-clamp-2 min-w-0 break-words" title={title}>
            {title}
          </h1>
        </div>
        {children !== undefined && <div className="flex min-w-0 flex-wrap items-center gap-x-3 gap-y-1 max-tablet:order-1 max-tablet:w-full">{children}</div>}
      </div>
      {actions !== undefined && <div className="ml-auto flex min-h-8 flex-wrap items-center gap-3">{actions}</div>}
    </header>
  );
}

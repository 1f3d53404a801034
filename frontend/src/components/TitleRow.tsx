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

/** The top of a page: where you are, its status, and at most one primary button. On phones the actions are beside the title if they fit. */
export function TitleRow({ title, tabTitle, parent, children, actions }: Props) {
  const { team } = useParams({ strict: false });
  return (
    <header className="mb-4 flex min-h-8 flex-wrap items-center gap-x-3 gap-y-2">
      <PageTitle>{tabTitle ?? (team === undefined ? title : `${title} · ${team}`)}</PageTitle>
      <div className="flex min-w-0 flex-wrap text-title font-semibold max-tablet:min-w-40 max-tablet:flex-1">
        {parent !== undefined && (
          <nav aria-label="Breadcrumb" className="whitespace-pre text-soft">
            {parent} /{" "}
          </nav>
        )}
        <h1 className="min-w-0 break-words">{title}</h1>
      </div>
      {children !== undefined && <div className="contents max-tablet:order-1 max-tablet:flex max-tablet:w-full max-tablet:flex-wrap max-tablet:items-center max-tablet:gap-x-3 max-tablet:gap-y-1">{children}</div>}
      {actions !== undefined && <div className="ml-auto flex flex-wrap items-center gap-3">{actions}</div>}
    </header>
  );
}

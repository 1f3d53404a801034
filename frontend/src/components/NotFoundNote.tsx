import { Link, useMatch } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { PageTitle } from "@/components/PageTitle";

export const PAGE_NOT_FOUND = "Page not found";

interface Props {
  /** What was not found, and why. */
  children: ReactNode;
  /** The heading, if it replaces an entire page. */
  title?: string | undefined;
}

/** Shown for a page, or an object of a page, that does not exist. */
export function NotFoundNote({ children, title }: Props) {
  const team = useMatch({ from: "/$team", shouldThrow: false, select: ({ context, params }) => context.me.teams.find(({ slug }) => slug === params.team)?.slug });
  return (
    <>
      {title !== undefined && (
        <>
          <PageTitle>{title}</PageTitle>
          <h1 className="mb-2 min-h-8 text-title leading-8 font-semibold">{title}</h1>
        </>
      )}
      <p className="text-soft">
        {children}{" "}
        <Link {...(team === undefined ? { to: "/" } : { to: "/$team/runs", params: { team } })} className="text-accent underline underline-offset-2">
          Go to your runs
        </Link>
      </p>
    </>
  );
}

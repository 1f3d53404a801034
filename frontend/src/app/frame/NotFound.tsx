import { Link } from "@tanstack/react-router";
import { PageTitle } from "@/components/PageTitle";

/** Shown for a page that does not exist. */
export function NotFound() {
  return (
    <>
      <PageTitle>Page not found</PageTitle>
      <h1 className="text-title font-semibold">Page not found</h1>
      <p className="mt-2 text-soft">
        The address may be wrong, or the item was deleted or belongs to another team.{" "}
        <Link to="/" className="text-accent underline underline-offset-2">
          Go to your runs
        </Link>
      </p>
    </>
  );
}

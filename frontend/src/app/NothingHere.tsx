import { Link } from "@tanstack/react-router";
import { PageTitle } from "@/components/PageTitle";

/** In place of a page that does not exist. */
export function NothingHere() {
  return (
    <>
      <PageTitle>Nothing here</PageTitle>
      <h1 className="text-title font-semibold">There is nothing here</h1>
      <p className="mt-2 text-soft">
        The address is wrong, the thing was deleted, or your team does not own it.{" "}
        <Link to="/" className="text-accent underline underline-offset-2">
          Go to your runs
        </Link>
      </p>
    </>
  );
}

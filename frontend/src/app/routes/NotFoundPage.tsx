import { Link } from "@tanstack/react-router";

export function NotFoundPage() {
  return (
    <main className="p-6">
      <h1 className="text-title font-semibold">There is nothing here</h1>
      <p className="mt-2 text-soft">
        The address is wrong, the thing was deleted, or your team does not own it.{" "}
        <Link to="/" className="text-accent underline underline-offset-2">
          Go to your runs
        </Link>
      </p>
    </main>
  );
}

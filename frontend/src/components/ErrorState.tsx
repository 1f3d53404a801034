import { Link } from "@tanstack/react-router";
import { ApiError, ConnectionError, errorMessage } from "@/api/errors";
import { Button, buttonClass } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { NotFoundNote, PAGE_NOT_FOUND } from "@/components/NotFoundNote";
import { PageTitle } from "@/components/PageTitle";

export const SERVER_UNREACHABLE = "The server cannot be reached";

interface Props {
  error: unknown;
  onRetry: () => void;
  /** Adds a heading, for errors that replace an entire page. */
  titled?: boolean;
  /** The heading if there is no such object. */
  notFoundTitle?: string | undefined;
}

/** Replaces a list or page that could not be loaded. There is no retry if it does not exist or is forbidden. */
export function ErrorState({ error, onRetry, titled = false, notFoundTitle = PAGE_NOT_FOUND }: Props) {
  const status = error instanceof ApiError ? error.status : 0;
  if (status === 404) return <NotFoundNote title={titled ? notFoundTitle : undefined}>{errorMessage(error)}</NotFoundNote>;
  const title = titleOf(error, status);
  return (
    <div className="flex max-w-xl flex-col items-start gap-4">
      {titled && (
        <>
          <PageTitle>{title}</PageTitle>
          <h1 className="min-h-8 text-title leading-8 font-semibold">{title}</h1>
        </>
      )}
      {error instanceof ConnectionError ? <p className="text-soft">{errorMessage(error)}</p> : <ErrorNote error={error} />}
      {status === 403 ? (
        <Link to="/" className={buttonClass()}>
          Go to your runs
        </Link>
      ) : (
        <Button onClick={onRetry}>Try again</Button>
      )}
    </div>
  );
}

function titleOf(error: unknown, status: number): string {
  if (error instanceof ConnectionError) return SERVER_UNREACHABLE;
  return status === 403 ? "You do not have access to this page" : "This page could not be loaded";
}

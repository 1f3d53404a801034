import { QueryErrorResetBoundary, useQueryClient } from "@tanstack/react-query";
import { CatchBoundary } from "@tanstack/react-router";
import { Suspense, useEffect, useReducer, useSyncExternalStore, type ReactNode } from "react";
import { ConnectionError } from "@/api/errors";
import { ErrorState } from "@/components/ErrorState";
import { Skeleton } from "@/components/Skeleton";
import { connection } from "@/lib/connection";

interface Props {
  children: ReactNode;
  skeleton?: ReactNode;
  /** The content includes the page's heading, so the error needs one too. */
  titled?: boolean;
  /** That heading if there is no such object, such as “Run not found”. */
  notFoundTitle?: string;
}

/** Shows a skeleton while its content loads or the server does not respond, an error if that fails, and retries once the connection is back. */
export function AsyncBoundary({ children, skeleton = <Skeleton />, titled = false, notFoundTitle }: Props) {
  const reconnects = useSyncExternalStore(connection.subscribe, connection.reconnects);
  const [, rerender] = useReducer((tries: number) => tries + 1, 0);
  return (
    <QueryErrorResetBoundary>
      {({ reset }) => (
        <CatchBoundary
          getResetKey={() => reconnects}
          errorComponent={({ error, reset: clear }) => (
            <BoundaryError
              titled={titled}
              notFoundTitle={notFoundTitle}
              skeleton={skeleton}
              error={error}
              onRetry={() => {
                reset();
                clear();
              }}
            />
          )}
        >
          <Suspense fallback={<SuspenseFallback skeleton={skeleton} onData={rerender} />}>{children}</Suspense>
        </CatchBoundary>
      )}
    </QueryErrorResetBoundary>
  );
}

interface BoundaryErrorProps {
  titled: boolean;
  notFoundTitle: string | undefined;
  skeleton: ReactNode;
  error: unknown;
  onRetry: () => void;
}

/** While the server does not respond, the banner says so, and a part of a page only keeps its place. */
function BoundaryError({ titled, notFoundTitle, skeleton, error, onRetry }: BoundaryErrorProps) {
  const isLost = useSyncExternalStore(connection.subscribe, connection.lostSince) !== null;
  useEffect(
    () =>
      connection.subscribe(() => {
        if (connection.lostSince() === null && error instanceof ConnectionError) onRetry();
      }),
    [error, onRetry],
  );
  if (isLost && !titled && error instanceof ConnectionError) return skeleton;
  return <ErrorState titled={titled} notFoundTitle={notFoundTitle} error={error} onRetry={onRetry} />;
}

interface SuspenseFallbackProps {
  skeleton: ReactNode;
  onData: () => void;
}

/**
 * Shows data as soon as it arrives. React keeps a fallback for at least 300 ms to avoid a flash; the skeleton
 * cannot flash, because it is invisible for its first 150 ms.
 */
function SuspenseFallback({ skeleton, onData }: SuspenseFallbackProps) {
  const client = useQueryClient();
  useEffect(
    () =>
      client.getQueryCache().subscribe((event) => {
        if (event.type === "updated" && event.action.type === "success") onData();
      }),
    [client, onData],
  );
  return skeleton;
}

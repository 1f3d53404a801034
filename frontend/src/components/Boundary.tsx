import { QueryErrorResetBoundary, useQueryClient } from "@tanstack/react-query";
import { CatchBoundary } from "@tanstack/react-router";
import { Suspense, useEffect, useReducer, useSyncExternalStore, type ReactNode } from "react";
import { ErrorState } from "@/components/ErrorState";
import { Skeleton } from "@/components/Skeleton";
import { connection } from "@/lib/connection";

interface Props {
  children: ReactNode;
  skeleton?: ReactNode;
  /** The page's heading is inside, so the error must bring one. */
  titled?: boolean;
}

/** Around what loads: its skeleton at first, its error if it fails, and a fresh try once the connection is back. */
export function Boundary({ children, skeleton = <Skeleton />, titled = false }: Props) {
  const epoch = useSyncExternalStore(connection.subscribe, connection.epoch);
  const [, tryAgain] = useReducer((tries: number) => tries + 1, 0);
  return (
    <QueryErrorResetBoundary>
      {({ reset }) => (
        <CatchBoundary
          getResetKey={() => epoch}
          errorComponent={({ error, reset: clear }) => (
            <ErrorState
              titled={titled}
              error={error}
              onRetry={() => {
                reset();
                clear();
              }}
            />
          )}
        >
          <Suspense fallback={<Waiting skeleton={skeleton} onAnswer={tryAgain} />}>{children}</Suspense>
        </CatchBoundary>
      )}
    </QueryErrorResetBoundary>
  );
}

interface WaitingProps {
  skeleton: ReactNode;
  onAnswer: () => void;
}

/**
 * Shows what came when it comes. React by itself keeps a fallback for 300 ms, lest it flash; a skeleton cannot flash,
 * being invisible for its first 150 ms.
 */
function Waiting({ skeleton, onAnswer }: WaitingProps) {
  const client = useQueryClient();
  useEffect(
    () =>
      client.getQueryCache().subscribe((event) => {
        if (event.type === "updated" && event.action.type === "success") onAnswer();
      }),
    [client, onAnswer],
  );
  return skeleton;
}

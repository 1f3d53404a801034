import { QueryErrorResetBoundary } from "@tanstack/react-query";
import { CatchBoundary } from "@tanstack/react-router";
import { Suspense, useSyncExternalStore, type ReactNode } from "react";
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
          <Suspense fallback={skeleton}>{children}</Suspense>
        </CatchBoundary>
      )}
    </QueryErrorResetBoundary>
  );
}

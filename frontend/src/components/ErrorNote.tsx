import { ApiError, errorMessage } from "@/api/errors";
import { Copyable } from "@/components/Copyable";

/** An inline error, with its code and request id for a report. */
export function ErrorNote({ error }: { error: unknown }) {
  return (
    <div role="alert" className="rounded-box border border-bad px-3 py-2 text-text">
      <p>{errorMessage(error)}</p>
      {error instanceof ApiError && error.requestId !== "" && (
        <p className="mt-1 text-small text-soft">
          <Copyable text={`${error.code} ${error.requestId}`} />
        </p>
      )}
    </div>
  );
}

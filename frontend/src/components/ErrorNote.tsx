import { ApiError, errorMessage } from "@/api/errors";
import { Copyable } from "@/components/Copyable";

/** From here on the server failed, and its log is needed; below, the message says what to change. */
const SERVER_FAILED = 500;

/** An inline error. A failure of the server has its code and request id for a report. */
export function ErrorNote({ error }: { error: unknown }) {
  return (
    <div role="alert" className="rounded-box border border-bad px-3 py-2 text-text">
      <p>{errorMessage(error)}</p>
      {error instanceof ApiError && error.status >= SERVER_FAILED && error.requestId !== "" && (
        <p className="mt-1 text-small text-soft">
          <Copyable text={`${error.code} ${error.requestId}`} />
        </p>
      )}
    </div>
  );
}

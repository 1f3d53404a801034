import { ApiError, sentenceOf } from "@/api/errors";
import { Copyable } from "@/components/Copyable";

/** What went wrong, where it went wrong, with the code and request id to pass on. */
export function ErrorNote({ error }: { error: unknown }) {
  return (
    <div role="alert" className="rounded-box border border-bad px-3 py-2 text-text">
      <p>{sentenceOf(error)}</p>
      {error instanceof ApiError && error.requestId !== "" && (
        <p className="mt-1 text-small text-soft">
          <Copyable text={`${error.code} ${error.requestId}`} />
        </p>
      )}
    </div>
  );
}

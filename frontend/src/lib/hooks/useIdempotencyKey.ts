import { useRef } from "react";
import { randomId } from "@/lib/randomId";

/** Returns the idempotency key of an input: another try with the same input repeats the request and creates nothing twice. */
export function useIdempotencyKey(): (input: unknown) => string {
  const last = useRef({ input: "", key: "" });
  return (input) => {
    const text = JSON.stringify(input);
    if (text !== last.current.input) last.current = { input: text, key: randomId() };
    return last.current.key;
  };
}

import { createContext, useContext } from "react";

/** Whether the person may change what the team of this page has; the API refuses viewers. */
export const MayEdit = createContext(true);

export function useMayEdit(): boolean {
  return useContext(MayEdit);
}

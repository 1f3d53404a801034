import { createContext, useContext } from "react";

/** Whether the user may edit the team's data; the API refuses viewers. */
export const CanEdit = createContext(true);

export function useCanEdit(): boolean {
  return useContext(CanEdit);
}

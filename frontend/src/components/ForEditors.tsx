import type { ReactNode } from "react";
import { useCanEdit } from "@/lib/permissions";

/** Hides actions that viewers may not perform. */
export function ForEditors({ children }: { children: ReactNode }) {
  return useCanEdit() && children;
}

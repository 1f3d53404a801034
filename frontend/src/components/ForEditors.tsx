import type { ReactNode } from "react";
import { useMayEdit } from "@/lib/mayEdit";

/** What a viewer cannot do is not offered. */
export function ForEditors({ children }: { children: ReactNode }) {
  return useMayEdit() && children;
}

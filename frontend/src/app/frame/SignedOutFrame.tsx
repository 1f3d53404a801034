import type { ReactNode } from "react";
import { PageTitle } from "@/components/PageTitle";

/** The page frame for signed-out users: one small panel. */
export function SignedOutFrame({ title, note, children }: { title: string; note?: string; children: ReactNode }) {
  return (
    <main className="flex min-h-dvh flex-col items-center p-4 pt-[14vh]">
      <PageTitle>{title}</PageTitle>
      <div className="w-full max-w-sm">
        <p className="mb-4 flex items-center gap-2 font-semibold">
          <img src="/favicon.svg" alt="" width={20} height={20} />
          Trainwright
        </p>
        <div className="panel p-6">
          <h1 className="text-title font-semibold">{title}</h1>
          {note !== undefined && <p className="mt-1 text-soft">{note}</p>}
          <div className="mt-4">{children}</div>
        </div>
      </div>
    </main>
  );
}

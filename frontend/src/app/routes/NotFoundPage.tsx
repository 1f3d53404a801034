import { NotFound } from "@/app/frame/NotFound";

export function NotFoundPage() {
  return (
    <main className="p-6">
      <NotFound />
    </main>
  );
}

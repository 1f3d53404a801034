import { NothingHere } from "@/app/NothingHere";

export function NotFoundPage() {
  return (
    <main className="p-6">
      <NothingHere />
    </main>
  );
}

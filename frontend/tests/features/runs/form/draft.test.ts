import { afterEach, expect, it, vi } from "vitest";
import { deleteDraft, storeDraft, storedDraft } from "@/features/runs/form/draft";

const KEY = { userId: "u_1", team: "lab" };

afterEach(() => {
  vi.restoreAllMocks();
});

it("keeps a draft in the tab", () => {
  storeDraft(KEY, { name: "pilot" });
  expect(storedDraft(KEY)?.values).toEqual({ name: "pilot" });
});

it("does without a draft if the storage is full", () => {
  vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
    throw new DOMException("The quota has been exceeded.", "QuotaExceededError");
  });
  storeDraft(KEY, { name: "pilot" });
  expect(storedDraft(KEY)).toBeNull();
});

it("deletes nothing if the storage is switched off", () => {
  vi.spyOn(Storage.prototype, "removeItem").mockImplementation(() => {
    throw new DOMException("The operation is insecure.", "SecurityError");
  });
  expect(() => {
    deleteDraft(KEY);
  }).not.toThrow();
});

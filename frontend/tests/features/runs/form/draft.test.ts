import { afterEach, expect, it, vi } from "vitest";
import { deleteDraft, mergeDraft, storeDraft, storedDraft } from "@/features/runs/form/draft";

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

it("restores cleared fields as empty, except those that the form proposes", () => {
  const values = { name: "", "data.dataset": "", "model.layers": "12", "model.kv_heads": "" };
  expect(mergeDraft({ userId: "ana", team: "lab" }, { at: "2026-11-30T12:00:00Z", values }, {})).toEqual({ "model.layers": "12", "model.kv_heads": "" });
});

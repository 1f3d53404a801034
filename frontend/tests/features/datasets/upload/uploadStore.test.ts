import { waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { addFiles, replaceUpload, confirmSameFile, pause, remove, resume, uploadSingle, uploadStore } from "@/features/datasets/upload/uploadStore";
import { runSignOutTasks } from "@/lib/signOutTasks";
import { server } from "@tests/support/server";
import { TusServer } from "@tests/support/tus";

let tus: TusServer;

beforeEach(() => {
  tus = new TusServer();
  server.use(...tus.handlers);
  localStorage.clear();
});

afterEach(async () => {
  for (const { key } of uploadStore.all()) await remove(key);
});

function aFile(name: string, text: string, lastModified = 1): File {
  return new File([text], name, { lastModified });
}

function send(...files: File[]): void {
  addFiles({ team: "lab", files: files.map((file) => ({ name: file.name, file })), known: tus.list() });
}

function states(): string[] {
  return uploadStore.all().map(({ state }) => state);
}

it("uploads two files at once, and the next when one is done", async () => {
  const open = tus.hold();
  send(aFile("a.txt", "one"), aFile("b.txt", "two"), aFile("c.txt", "three"));
  await waitFor(() => {
    expect(tus.mostAtOnce).toBe(2);
  });
  expect(states()).toEqual(["sending", "sending", "queued"]);
  expect(window.onbeforeunload).not.toBeNull();
  open();
  await waitFor(() => {
    expect(states()).toEqual(["complete", "complete", "complete"]);
  });
  expect(tus.mostAtOnce).toBe(2);
  expect(tus.list().map(({ file_name, offset }) => [file_name, offset])).toEqual([["a.txt", 3], ["b.txt", 3], ["c.txt", 5]]);
  expect(window.onbeforeunload).toBeNull();
});

it("creates one upload if the response to its creation is lost", async () => {
  tus.losesNextCreation = true;
  send(aFile("a.txt", "one"));
  await waitFor(
    () => {
      expect(states()).toEqual(["complete"]);
    },
    { timeout: 10_000 },
  );
  send(aFile("b.txt", "two"));
  await waitFor(() => {
    expect(states()).toEqual(["complete", "complete"]);
  });
  expect(tus.list().map(({ file_name, complete }) => [file_name, complete])).toEqual([["a.txt", true], ["b.txt", true]]);
});

it("resumes from the server's offset when a file is chosen again", async () => {
  tus.begun("up_old", "a.txt", 10, 6);
  localStorage.setItem("trainwright.upload.up_old", "1");
  send(aFile("a.txt", "0123456789"));
  await waitFor(() => {
    expect(states()).toEqual(["complete"]);
  });
  expect([...tus.uploads.keys()]).toEqual(["up_old"]);
  expect(tus.uploads.get("up_old")?.offset).toBe(10);
});

it("starts over if a file with the same name and size has changed", async () => {
  tus.begun("up_old", "a.txt", 10, 6);
  localStorage.setItem("trainwright.upload.up_old", "1");
  send(aFile("a.txt", "9876543210", 2));
  await waitFor(() => {
    expect(states()).toEqual(["complete"]);
  });
  expect(tus.uploads.get("up_old")?.offset).toBe(6);
  expect(tus.uploads.size).toBe(2);
});

it("asks about a file known only by name and size, and resumes if it is the same", async () => {
  tus.begun("up_old", "a.txt", 10, 6);
  send(aFile("a.txt", "0123456789"), aFile("b.txt", "two"));
  await waitFor(() => {
    expect(states()).toEqual(["doubtful", "complete"]);
  });
  expect(tus.uploads.get("up_old")?.offset).toBe(6);
  send(aFile("a.txt", "0123456789"));
  expect(states()).toEqual(["doubtful", "complete"]);
  confirmSameFile(uploadStore.all()[0]?.key ?? "");
  await waitFor(() => {
    expect(states()).toEqual(["complete", "complete"]);
  });
  expect(tus.uploads.get("up_old")?.offset).toBe(10);
});

it("starts over if the file is a different one", async () => {
  tus.begun("up_old", "a.txt", 10, 6);
  send(aFile("a.txt", "9876543210"));
  replaceUpload(uploadStore.all()[0]?.key ?? "");
  await waitFor(() => {
    expect(states()).toEqual(["complete"]);
  });
  await waitFor(() => {
    expect([...tus.uploads.keys()]).not.toContain("up_old");
  });
  expect(tus.uploads.size).toBe(1);
});

it("uploads a file although the browser's storage is full", async () => {
  const forbidden = vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
    throw new DOMException("full", "QuotaExceededError");
  });
  send(aFile("a.txt", "one"));
  await waitFor(() => {
    expect(states()).toEqual(["complete"]);
  });
  forbidden.mockRestore();
});

it("stops all uploads and drops all files before sign-out", async () => {
  const open = tus.hold();
  send(aFile("a.txt", "one"), aFile("b.txt", "two"), aFile("c.txt", "three"));
  await waitFor(() => {
    expect(tus.mostAtOnce).toBe(2);
  });
  runSignOutTasks();
  open();
  expect(uploadStore.all()).toEqual([]);
  expect(window.onbeforeunload).toBeNull();
  expect(tus.uploads.size).toBe(2);
});

it("pauses, starts the next upload, and resumes", async () => {
  const open = tus.hold();
  send(aFile("a.txt", "one"), aFile("b.txt", "two"), aFile("c.txt", "three"));
  await waitFor(() => {
    expect(tus.mostAtOnce).toBe(2);
  });
  pause(uploadStore.all()[0]?.key ?? "");
  expect(states()).toEqual(["paused", "sending", "sending"]);
  resume(uploadStore.all()[0]?.key ?? "");
  expect(states()).toEqual(["queued", "sending", "sending"]);
  open();
  await waitFor(() => {
    expect(states()).toEqual(["complete", "complete", "complete"]);
  });
});

it("shows the server's message next to a refused file, and uploads the others", async () => {
  const detail = "The team's storage is full. Delete what is not needed, or ask the site admin for more.";
  server.use(
    http.post(
      "*/teams/lab/uploads",
      () => HttpResponse.json({ title: "Refused", status: 409, code: "quota_exceeded", detail, request_id: "r1" }, { status: 409 }),
      { once: true },
    ),
  );
  send(aFile("a.txt", "one"), aFile("b.txt", "two"));
  await waitFor(() => {
    expect(states()).toEqual(["failed", "complete"]);
  });
  expect(uploadStore.all()[0]?.error?.message).toBe(detail);
});

it("deletes the upload of a removed file", async () => {
  send(aFile("a.txt", "one"));
  await waitFor(() => {
    expect(states()).toEqual(["complete"]);
  });
  await remove(uploadStore.all()[0]?.key ?? "");
  expect(uploadStore.all()).toEqual([]);
  expect(tus.uploads.size).toBe(0);
});

it("returns the id of a single upload, or its error", async () => {
  expect(await uploadSingle("lab", aFile("tokenizer.json", "{}"))).toBe("up_1");
  server.use(http.post("*/teams/lab/uploads", () => HttpResponse.json({ detail: "Too large." }, { status: 413 })));
  await expect(uploadSingle("lab", aFile("other.json", "{}"))).rejects.toThrow("Too large.");
});

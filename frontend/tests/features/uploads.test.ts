import { waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { addFiles, beginAnew, goOn, letGo, pause, remove, resume, sendAside, uploadStore } from "@/features/datasets/uploads";
import { server } from "../server";
import { TusServer } from "../tus";

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

it("sends two files at once and the next when one is done", async () => {
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

it("goes on from the server's offset with a file that is chosen again", async () => {
  tus.begun("up_old", "a.txt", 10, 6);
  localStorage.setItem("trainwright.upload.up_old", "1");
  send(aFile("a.txt", "0123456789"));
  await waitFor(() => {
    expect(states()).toEqual(["complete"]);
  });
  expect([...tus.uploads.keys()]).toEqual(["up_old"]);
  expect(tus.uploads.get("up_old")?.offset).toBe(10);
});

it("begins anew with a file of the same name and size that has changed since", async () => {
  tus.begun("up_old", "a.txt", 10, 6);
  localStorage.setItem("trainwright.upload.up_old", "1");
  send(aFile("a.txt", "9876543210", 2));
  await waitFor(() => {
    expect(states()).toEqual(["complete"]);
  });
  expect(tus.uploads.get("up_old")?.offset).toBe(6);
  expect(tus.uploads.size).toBe(2);
});

it("asks about a file that it knows by name and size only, and goes on when it is the same", async () => {
  tus.begun("up_old", "a.txt", 10, 6);
  send(aFile("a.txt", "0123456789"), aFile("b.txt", "two"));
  await waitFor(() => {
    expect(states()).toEqual(["doubtful", "complete"]);
  });
  expect(tus.uploads.get("up_old")?.offset).toBe(6);
  send(aFile("a.txt", "0123456789"));
  expect(states()).toEqual(["doubtful", "complete"]);
  goOn(uploadStore.all()[0]?.key ?? "");
  await waitFor(() => {
    expect(states()).toEqual(["complete", "complete"]);
  });
  expect(tus.uploads.get("up_old")?.offset).toBe(10);
});

it("begins anew with a file that is another one", async () => {
  tus.begun("up_old", "a.txt", 10, 6);
  send(aFile("a.txt", "9876543210"));
  beginAnew(uploadStore.all()[0]?.key ?? "");
  await waitFor(() => {
    expect(states()).toEqual(["complete"]);
  });
  await waitFor(() => {
    expect([...tus.uploads.keys()]).not.toContain("up_old");
  });
  expect(tus.uploads.size).toBe(1);
});

it("sends a file although the browser keeps nothing", async () => {
  const forbidden = vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
    throw new DOMException("full", "QuotaExceededError");
  });
  send(aFile("a.txt", "one"));
  await waitFor(() => {
    expect(states()).toEqual(["complete"]);
  });
  forbidden.mockRestore();
});

it("stops all and holds no file once it lets go", async () => {
  const open = tus.hold();
  send(aFile("a.txt", "one"), aFile("b.txt", "two"), aFile("c.txt", "three"));
  await waitFor(() => {
    expect(tus.mostAtOnce).toBe(2);
  });
  letGo();
  open();
  expect(uploadStore.all()).toEqual([]);
  expect(window.onbeforeunload).toBeNull();
  expect(tus.uploads.size).toBe(2);
});

it("pauses, lets the next go, and resumes", async () => {
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

it("keeps the server's sentence beside the file that it refuses, and sends the others", async () => {
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

it("drops what the server has of a file that is removed", async () => {
  send(aFile("a.txt", "one"));
  await waitFor(() => {
    expect(states()).toEqual(["complete"]);
  });
  await remove(uploadStore.all()[0]?.key ?? "");
  expect(uploadStore.all()).toEqual([]);
  expect(tus.uploads.size).toBe(0);
});

it("gives the id of a file sent aside, and the refusal of one that is not taken", async () => {
  expect(await sendAside("lab", aFile("tokenizer.json", "{}"))).toBe("up_1");
  server.use(http.post("*/teams/lab/uploads", () => HttpResponse.json({ detail: "Too large." }, { status: 413 })));
  await expect(sendAside("lab", aFile("other.json", "{}"))).rejects.toThrow("Too large.");
});

import { http, HttpResponse } from "msw";
import type { Upload } from "@/api/types";

/** A tus server in memory: the part of the protocol that the browser's client needs, and access to what arrived. */
export class TusServer {
  readonly uploads = new Map<string, { name: string; bytes: number; offset: number }>();
  /** Requests in progress, and their maximum so far. */
  mostAtOnce = 0;
  private underWay = 0;
  private gate: Promise<undefined> = Promise.resolve(undefined);
  /** Uploads by the key of the request that created them. */
  private readonly created = new Map<string, string>();
  /** Whether the response of the next creation is lost. */
  losesNextCreation = false;

  /** Holds back every chunk until the returned function is called. */
  hold(): () => void {
    let release: (value: undefined) => void = nothing;
    this.gate = new Promise((resolve) => {
      release = resolve;
    });
    return () => {
      release(undefined);
    };
  }

  /** An upload that another page started. */
  begun(id: string, name: string, bytes: number, offset: number): void {
    this.uploads.set(id, { name, bytes, offset });
  }

  list(): Upload[] {
    return [...this.uploads].map(([id, { name, bytes, offset }]) => ({
      id,
      file_name: name,
      created_by: "Ada",
      mine: true,
      bytes,
      offset,
      complete: offset === bytes,
      digest: null,
      created: "2026-11-21T13:00:00Z",
      expires: "2026-11-28T13:00:00Z",
    }));
  }

  readonly handlers = [
    http.get("*/teams/lab/uploads", () => HttpResponse.json({ items: this.list() })),
    http.post("*/teams/lab/uploads", ({ request }) => {
      const bytes = Number(request.headers.get("Upload-Length"));
      const key = request.headers.get("Idempotency-Key") ?? "";
      const id = this.created.get(key) ?? `up_${this.uploads.size + 1}`;
      if (!this.created.has(key)) this.uploads.set(id, { name: nameIn(request.headers.get("Upload-Metadata") ?? ""), bytes, offset: 0 });
      this.created.set(key, id);
      if (this.losesNextCreation) {
        this.losesNextCreation = false;
        return HttpResponse.error();
      }
      return new HttpResponse(null, { status: 201, headers: { Location: `/api/v1/teams/lab/uploads/${id}`, "Tus-Resumable": "1.0.0" } });
    }),
    http.head("*/teams/lab/uploads/:id", ({ params }) => {
      const upload = this.uploads.get(String(params["id"]));
      if (upload === undefined) return new HttpResponse(null, { status: 404 });
      const headers = { "Upload-Offset": String(upload.offset), "Upload-Length": String(upload.bytes), "Tus-Resumable": "1.0.0" };
      return new HttpResponse(null, { status: 200, headers });
    }),
    http.patch("*/teams/lab/uploads/:id", async ({ params, request }) => {
      const upload = this.uploads.get(String(params["id"]));
      if (upload === undefined) return new HttpResponse(null, { status: 404 });
      this.underWay += 1;
      this.mostAtOnce = Math.max(this.mostAtOnce, this.underWay);
      await this.gate;
      upload.offset = Number(request.headers.get("Upload-Offset")) + (await request.arrayBuffer()).byteLength;
      this.underWay -= 1;
      return new HttpResponse(null, { status: 204, headers: { "Upload-Offset": String(upload.offset), "Tus-Resumable": "1.0.0" } });
    }),
    http.delete("*/teams/lab/uploads/:id", ({ params }) => {
      this.uploads.delete(String(params["id"]));
      return new HttpResponse(null, { status: 204, headers: { "Tus-Resumable": "1.0.0" } });
    }),
  ];
}

function nameIn(metadata: string): string {
  const [, text = ""] = metadata.split(" ");
  return atob(text);
}

function nothing(): void {
  // until the gate is created
}

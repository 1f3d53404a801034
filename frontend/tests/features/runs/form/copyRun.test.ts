import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { forkRun } from "@/features/runs/form/copyRun";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const OF_A_DATASET = { kind: "dataset", source: "ds_1" };

/** The request for a fork with this tokenizer, where a plain submission would have 700 token ids. */
async function sent(tokenizer: Record<string, unknown>): Promise<unknown> {
  const parent = aRun();
  const written = { ...parent.spec, data: { ...parent.spec.data, dataset: "ds_2", tokenizer } };
  const filled = { ...written, data: { ...written.data, tokenizer: { ...tokenizer, vocabulary: tokenizer.vocabulary ?? 700 } } };
  let asked: unknown = null;
  server.use(
    http.post("*/api/v1/teams/lab/runs/validate", () => HttpResponse.json({ valid: true, spec: filled, parameters: 1, problems: [] })),
    http.post("*/api/v1/teams/lab/runs/run_1/fork", async ({ request }) => {
      asked = await request.json();
      return HttpResponse.json(parent, { status: 201 });
    }),
  );
  await forkRun("lab", parent, "ck_1", written, "key");
  return (asked as { changes: unknown }).changes;
}

describe("a fork with another tokenizer", () => {
  const other = { "data.dataset": "ds_2", "data.version": 1, "data.tokenizer.kind": "dataset", "data.tokenizer.source": "ds_1" };

  it("leaves an empty vocabulary to the API", async () => {
    for (const tokenizer of [OF_A_DATASET, { ...OF_A_DATASET, vocabulary: null }]) {
      expect(await sent(tokenizer)).toEqual({ ...other, "data.tokenizer.vocabulary": null });
    }
  });

  it("sends an explicit vocabulary", async () => {
    expect(await sent({ ...OF_A_DATASET, vocabulary: 300 })).toEqual({ ...other, "data.tokenizer.vocabulary": 300 });
  });
});

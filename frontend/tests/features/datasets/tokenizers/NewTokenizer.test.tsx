import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, it } from "vitest";
import { NewTokenizer } from "@/features/datasets/tokenizers/NewTokenizer";
import { uploadStore } from "@/features/datasets/upload/uploadStore";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";
import { TusServer } from "@tests/support/tus";

let tus: TusServer;

beforeEach(() => {
  tus = new TusServer();
  server.use(...tus.handlers);
});

async function upload(): Promise<void> {
  renderRoute(<NewTokenizer team="lab" />);
  await userEvent.upload(await screen.findByLabelText("Tokenizer file"), new File(["{}"], "gpt2.json"));
  expect(screen.getByLabelText<HTMLInputElement>("Tokenizer name").value).toBe("gpt2");
  await userEvent.click(screen.getByRole("button", { name: "Upload tokenizer" }));
}

it("creates a tokenizer from a file", async () => {
  const made: unknown[] = [];
  server.use(
    http.post("*/teams/lab/tokenizers", async ({ request }) => {
      made.push(await request.json());
      return HttpResponse.json({ id: "tok_1" }, { status: 201 });
    }),
  );
  await upload();
  await waitFor(() => {
    expect(made).toEqual([{ name: "gpt2", upload: "up_1" }]);
  });
  await waitFor(() => {
    expect(screen.getByLabelText<HTMLInputElement>("Tokenizer name").value).toBe("");
  });
});

it("asks for the file and the name at once, and goes to the file", async () => {
  renderRoute(<NewTokenizer team="lab" />);
  await userEvent.click(await screen.findByRole("button", { name: "Upload tokenizer" }));
  expect(screen.getAllByText("This field is required.")).toHaveLength(2);
  expect(document.activeElement).toBe(screen.getByLabelText("Tokenizer file"));
});

it("shows why a file is not a tokenizer, and deletes its upload", async () => {
  const detail = "gpt2.json has no vocabulary. Save it with tokenizer.save().";
  server.use(http.post("*/teams/lab/tokenizers", () => HttpResponse.json({ detail, code: "invalid" }, { status: 422 })));
  await upload();
  expect(await screen.findByText(detail)).toBeDefined();
  expect(tus.uploads.size).toBe(0);
  expect(uploadStore.all()).toEqual([]);
});

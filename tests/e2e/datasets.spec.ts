import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test, type Locator, type Page } from "@playwright/test";
import { audit, auditSizes, browserErrors } from "./audit";
import { signIn } from "./session";

const SLOW_BYTES_PER_SECOND = 400 * 1_024;

/** Uploads data through pauses and a reload, previews it, changes its curation and mixes datasets. */
test("from files on a disk to a mixture of datasets", async ({ page }) => {
  const errors = browserErrors(page);
  const files = write(test.info().outputPath("files"));
  await signIn(page);
  await expect(page.getByText("No runs yet.")).toBeVisible();
  await page.getByRole("link", { name: "Datasets" }).click();
  await expect(page.getByText("No datasets yet.")).toBeVisible();
  await auditSizes(page, "data-empty");

  await test.step("files and a folder are uploaded, paused and resumed", async () => {
    await slow(page, SLOW_BYTES_PER_SECOND);
    await page.getByLabel("Choose files").setInputFiles([files.letters]);
    await expect(row(page, "letters.jsonl")).toContainText(/\/s, .* left/, { timeout: 30_000 });
    await page.getByLabel("Choose a folder").setInputFiles(files.books);
    await expect(row(page, "books/deep/second.txt")).toContainText("Uploaded");
    await audit(page, "data-uploading");
    await page.getByRole("button", { name: "Pause letters.jsonl" }).click();
    await expect(row(page, "letters.jsonl")).toContainText("Paused");
    await page.getByRole("button", { name: "Resume letters.jsonl" }).press("Enter");
    await expect(row(page, "letters.jsonl")).toContainText("Uploading");
    await page.getByRole("button", { name: "Pause all" }).click();
    await expect(page.getByRole("button", { name: "Resume all" })).toBeVisible();
  });

  await test.step("after a reload the file, chosen again, resumes", async () => {
    await page.reload();
    await expect(row(page, "letters.jsonl")).toContainText(/[1-9][\d.]* [KM]iB of .* Choose the file again to resume/);
    await expect(row(page, "books/first.txt")).toContainText("Uploaded");
    await auditSizes(page, "data-unfinished");
    await slow(page, -1);
    const sent = bytesSent(page);
    await page.getByLabel("Choose files").setInputFiles([files.letters]);
    await expect(row(page, "letters.jsonl")).toContainText("Uploaded", { timeout: 30_000 });
    expect(await sent()).toBeLessThan(files.lettersBytes);
  });

  await test.step("the first rows are previewed, and a dataset is created", async () => {
    await page.getByRole("button", { name: "Preview files" }).click();
    const first = page.getByRole("region", { name: "Preview", exact: true });
    await expect(first.getByText("Letter 0: the ship")).toBeVisible();
    await expect(first.getByText("JSON Lines")).toBeVisible();
    await first.getByLabel("Text files").selectOption("blank_line");
    await expect(first.getByText("Call me Ishmael.", { exact: true })).toBeVisible();
    await auditSizes(page, "data-preview");
    // Nothing below the content makes the page longer.
    const [height, end] = await page.evaluate(() => [document.documentElement.scrollHeight, document.querySelector("main > div")?.getBoundingClientRect().bottom ?? 0]);
    expect(height).toBeLessThanOrEqual(Math.max(900, Math.ceil(end + (await page.evaluate(() => window.scrollY)))) + 1);
    await first.getByLabel("Name").fill("letters");
    await first.getByRole("button", { name: "Create dataset" }).click();
    await expect(page.getByRole("heading", { name: "letters", level: 1 })).toBeVisible();
  });
  const letters = page.url();

  await test.step("its page shows what happened to the documents", async () => {
    await expect(page.getByText("Ready")).toBeVisible({ timeout: 90_000 });
    const version = page.getByRole("region", { name: "Version 1" });
    await expect(figure(version, "documents")).toHaveText(files.documents);
    await expect(figure(version, "exact duplicates")).toHaveText(/^39\b/);
    await expect(figure(version, "could not be read")).toHaveText("1");
    await auditSizes(page, "data-dataset");
    await version.getByRole("button", { name: "1 document could not be read" }).click();
    await expect(version.getByText("letters.jsonl:3", { exact: true })).toBeVisible();
    await expect(version.getByRole("list", { name: "Documents" }).getByRole("listitem").first()).toBeVisible();
    await version.getByRole("button", { name: /^3 files/ }).click();
    await expect(version.getByText("JSON Lines")).toBeVisible();
    await audit(page, "data-dataset-unfolded");
  });

  await test.step("a different curation is counted, then becomes a version", async () => {
    await page.getByRole("button", { name: "New version" }).click();
    await page.getByText("curation only").click();
    await page.getByLabel("Drop exact duplicates").check();
    await page.getByLabel("Minimum length, characters").fill("30");
    await page.getByRole("button", { name: "Count" }).click();
    await expect(page.getByText(/^This keeps/)).toBeVisible({ timeout: 30_000 });
    await expect(page.getByText(/Dropped: 39 duplicate/)).toBeVisible();
    await auditSizes(page, "data-curation");
    await page.getByRole("button", { name: "Create version" }).click();
    const second = page.getByRole("region", { name: "Version 2" });
    await expect(figure(second, "dropped: duplicate")).toHaveText(/^39\b/, { timeout: 60_000 });
    await expect(second.getByRole("list", { name: "What changed" }).getByRole("listitem")).not.toHaveCount(0);
    await expect(second.getByText("Ready")).toBeVisible({ timeout: 60_000 });
    await expect(second.getByText("dropped: duplicate").first()).toBeVisible();
    await audit(page, "data-versions");
  });

  await test.step("a file that does not match its name is reported, and a column is chosen", async () => {
    await page.getByRole("link", { name: "Datasets" }).first().click();
    await page.getByLabel("Choose files").setInputFiles([files.rows, files.broken]);
    await page.getByRole("button", { name: "Preview files" }).click();
    await expect(page.getByRole("alert").filter({ hasText: "broken.csv.gz" })).toBeVisible();
    await expect(page.getByRole("button", { name: "Create dataset" })).toBeDisabled();
    await auditSizes(page, "data-broken");
    await page.getByRole("button", { name: "Exclude broken.csv.gz" }).click();
    await page.getByRole("combobox", { name: "Field" }).selectOption("body");
    await expect(page.getByText("body of row 0, over", { exact: false })).toBeVisible();
    await page.getByRole("region", { name: "Preview", exact: true }).getByLabel("Name").fill("rows");
    await page.getByRole("button", { name: "Create dataset" }).click();
    await expect(page.getByRole("heading", { name: "rows", level: 1 })).toBeVisible();
    await expect(page.getByText("Ready")).toBeVisible({ timeout: 90_000 });
    await expect(page.getByText("documents from the field “body”", { exact: false })).toBeVisible();
  });

  await test.step("two datasets are counted and mixed by weight", async () => {
    await page.getByRole("link", { name: "Datasets" }).first().click();
    await page.getByRole("button", { name: "Remove broken.csv.gz" }).click();
    await page.getByRole("button", { name: "Remove file" }).click();
    await expect(page.getByText("broken.csv.gz")).toBeHidden();
    await page.getByRole("button", { name: "Mix datasets" }).click();
    const mix = page.getByRole("region", { name: "Mix datasets" });
    await mix.getByRole("group", { name: "Dataset 1 of" }).getByLabel("Dataset").selectOption("letters");
    await mix.getByRole("group", { name: "Dataset 2 of" }).getByLabel("Dataset").selectOption("rows");
    await mix.getByRole("group", { name: "Dataset 2 of" }).getByLabel("Weight").fill("3");
    await mix.getByRole("button", { name: "Count" }).click();
    await expect(mix.getByText(/^rows, version 1: .* of the mixture/)).toBeVisible({ timeout: 30_000 });
    await auditSizes(page, "data-mix");
    await mix.getByLabel("Name").fill("letters and rows");
    await mix.getByRole("button", { name: "Create dataset" }).click();
    await expect(page.getByRole("heading", { name: "letters and rows", level: 1 })).toBeVisible();
    await expect(page.getByText("Ready")).toBeVisible({ timeout: 90_000 });
    await expect(page.getByRole("list", { name: "Mixed from" }).getByRole("link", { name: "rows" })).toBeVisible();
    await audit(page, "data-mixture");
  });

  await test.step("a version that a mixture uses cannot be deleted", async () => {
    await page.goto(letters);
    await page.getByRole("button", { name: "Delete version 2" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Delete version" }).click();
    await expect(dialog.getByRole("alert")).toContainText("letters and rows");
    await audit(page, "data-delete");
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await expect(page.getByRole("button", { name: "Delete version 2" })).toBeFocused();
  });

  await test.step("one tokenizer is refused with a reason, another is accepted and offered to a run", async () => {
    await page.getByRole("link", { name: "Datasets" }).first().click();
    await page.getByLabel("Tokenizer file").setInputFiles(files.notTokenizer);
    await page.getByRole("button", { name: "Upload tokenizer" }).click();
    await expect(page.getByRole("alert")).toBeVisible();
    await page.getByLabel("Tokenizer file").setInputFiles(files.tokenizer);
    await page.getByLabel("Tokenizer name").fill("letters of bytes");
    await page.getByRole("button", { name: "Upload tokenizer" }).click();
    await expect(page.getByRole("cell", { name: "letters of bytes", exact: true })).toBeVisible();
    await auditSizes(page, "data-list");
    await page.goto(letters);
    await page.getByRole("link", { name: "New run" }).click();
    await page.getByRole("button", { name: /^Data settings/ }).click();
    await page.getByLabel("Tokenizer kind").selectOption("uploaded");
    await page.getByLabel("Uploaded tokenizer").selectOption("letters of bytes");
    await audit(page, "data-run-form");
  });

  // The browser also reports the errors that the test provokes on purpose.
  expect(errors.filter((line) => !/status of (409|422)/.test(line))).toEqual([]);
});

function row(page: Page, name: string): Locator {
  return page.getByRole("region", { name: "Uploads" }).getByRole("listitem").filter({ hasText: name });
}

function figure(version: Locator, name: string): Locator {
  return version.locator("dt", { hasText: new RegExp(`^${name}$`) }).locator("+ dd");
}

/** Limits the upload speed; -1 removes the limit. */
async function slow(page: Page, uploadThroughput: number): Promise<void> {
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  await session.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput });
}

/** Counts the bytes uploaded from now on. */
function bytesSent(page: Page): () => Promise<number> {
  const sizes: Promise<number>[] = [];
  page.on("requestfinished", (request) => {
    if (request.method() === "PATCH") sizes.push(request.sizes().then(({ requestBodySize }) => requestBodySize));
  });
  return async () => (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}

/**
 * Letters with duplicates, short ones and a broken line; a folder of texts; a table; and files whose content does
 * not match their names.
 */
function write(folder: string) {
  mkdirSync(join(folder, "books", "deep"), { recursive: true });
  const put = (name: string, content: string | Buffer) => {
    const path = join(folder, name);
    writeFileSync(path, content);
    return path;
  };
  const letter = (n: number) => {
    if (n >= 3_000) return JSON.stringify({ text: `Note ${n}.` });
    const words = Array.from({ length: 60 + (n % 90) }, (_, k) => `sail ${(n * k) % 13} turns to port ${(n + k) % 7}`);
    return JSON.stringify({ text: `Letter ${n}: the ship is at sea, ${words.join(", ")}.` });
  };
  const numbers = [...Array(3_060).keys(), ...Array(40).keys()];
  const lines = numbers.map((n, index) => (index === 2 ? "not a document" : letter(n)));
  const content = Buffer.from(lines.join("\n"));
  put("books/first.txt", "Call me Ishmael.\n\nSome years ago, never mind how long, I went to sea.\n");
  put("books/deep/second.txt", "It is a way I have of driving off the spleen.\n");
  const table = Array.from({ length: 400 }, (_, n) => `${n},title ${n},"body of row ${n}, over\nand over, ${"wind and water ".repeat(8)}"`);
  return {
    letters: put("letters.jsonl", content),
    lettersBytes: content.length,
    /** Every line except the broken one, and three from the books. */
    documents: new Intl.NumberFormat("en-US").format(numbers.length - 1 + 3),
    books: join(folder, "books"),
    rows: put("rows.csv", ["id,title,body", ...table].join("\n")),
    broken: put("broken.csv.gz", "id,title,body\n1,a,b\n"),
    notTokenizer: put("not-a-tokenizer.json", "{}"),
    tokenizer: put("tokenizer.json", JSON.stringify(byteTokenizer())),
  };
}

/** A byte-level BPE without merges: each byte is a token. */
function byteTokenizer() {
  const printable = (byte: number) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
  let strange = 0;
  const letters = Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : 256 + strange++));
  const level = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: [{ id: 256, content: "<|endoftext|>", ...flags }],
    normalizer: null,
    pre_tokenizer: level,
    post_processor: null,
    decoder: level,
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries([...letters, "<|endoftext|>"].map((text, id) => [text, id])),
      merges: [],
    },
  };
}

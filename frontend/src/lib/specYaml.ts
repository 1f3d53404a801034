/**
 * A spec as YAML: read with the line of every fault and every field, and written so that what a person has put around
 * it, comments and order, stays. JSON is YAML too, so a spec in JSON can be pasted.
 */
import { isAlias, isMap, LineCounter, parseDocument, stringify, visit, type Document, type ErrorCode } from "yaml";
import { sentenceOf } from "@/api/errors";
import { leaves, type Json } from "@/lib/specForm";

export interface Fault {
  line: number;
  message: string;
}

export interface SpecText {
  /** Null while it cannot be read. */
  spec: Record<string, Json> | null;
  faults: Fault[];
  /** Where a field stands, or the nearest section around it; line 1 where neither is written. */
  lineOf: (field: string) => number;
}

export function readYaml(text: string): SpecText {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  // Only the first: what follows is mostly its echo, on lines that are well.
  const faults = document.errors.slice(0, 1).map(({ code, pos, message }) => ({ line: lines.linePos(pos[0]).line, message: inWords(code, message) }));
  const lineOf = (field: string) => lineIn(document, lines, field.split("."));
  if (faults.length > 0) return { spec: null, faults, lineOf };
  if (document.contents === null) return { spec: {}, faults: [], lineOf };
  if (!isMap(document.contents)) {
    return { spec: null, faults: [{ line: 1, message: "This is no list of fields. Write `name: value`, a line for each." }], lineOf };
  }
  try {
    return { spec: asJson(document), faults: [], lineOf };
  } catch (error) {
    // Aliases that go in circles, or grow without end.
    return { spec: null, faults: [{ line: 1, message: sentence(sentenceOf(error)) }], lineOf };
  }
}

const HEAD = "What is left out keeps its default.";

/** A text to begin with; the name, which every run needs, stands in it though it is empty. */
export function writeYaml(spec: Record<string, Json>): string {
  const name = spec["name"] === undefined ? "name:\n" : "";
  return `# ${HEAD}\n${name}${Object.keys(spec).length === 0 ? "" : stringify(spec, { lineWidth: 0 })}`;
}

/** The text with the fields of another spec: what did not change stays as it was written. */
export function rewritten(text: string, spec: Record<string, Json>): string {
  const document = parseDocument(text);
  if (document.errors.length > 0 || !isMap(document.contents) || hasAliases(document)) return writeYaml(spec);
  const wanted = new Map(leaves(spec, ""));
  const written = new Map(leaves(asJson(document), ""));
  for (const path of written.keys()) if (!wanted.has(path)) remove(document, path.split("."));
  for (const [path, value] of wanted) {
    if (JSON.stringify(written.get(path)) !== JSON.stringify(value)) document.setIn(path.split("."), value);
  }
  const result = document.toString({ lineWidth: 0 });
  return sameSpec(readYaml(result).spec, spec) ? result : writeYaml(spec);
}

/** A field goes, and each section that it leaves empty. */
function remove(document: Document, path: string[]): void {
  document.deleteIn(path);
  const parent = path.slice(0, -1);
  const around = parent.length === 0 ? null : document.getIn(parent);
  if (isMap(around) && around.items.length === 0) remove(document, parent);
}

function sameSpec(one: Record<string, Json> | null, other: Record<string, Json>): boolean {
  const sorted = (spec: Record<string, Json>) =>
    JSON.stringify(leaves(spec, "").sort(([path], [second]) => (path < second ? -1 : 1)));
  return one !== null && sorted(one) === sorted(other);
}

function hasAliases(document: Document): boolean {
  let found = false;
  visit(document, (_, node) => {
    if (isAlias(node)) found = true;
  });
  return found;
}

/** Only what JSON can say; a date or a binary has no place in a spec and reads as text. */
function asJson(document: Document): Record<string, Json> {
  return JSON.parse(JSON.stringify(document.toJS({ maxAliasCount: 50 }))) as Record<string, Json>;
}

function lineIn(document: Document, lines: LineCounter, path: string[]): number {
  for (let depth = path.length; depth > 0; depth -= 1) {
    const around = depth === 1 ? document.contents : document.getIn(path.slice(0, depth - 1), true);
    const pair = isMap(around) ? around.items.find(({ key }) => String(key) === path[depth - 1]) : undefined;
    const at = (pair?.key as { range?: [number, number, number] } | undefined)?.range;
    if (at !== undefined) return lines.linePos(at[0]).line;
  }
  return 1;
}

const NAME_AND_VALUE = "Write `name: value`, with a colon and a space between them";

/** In the place of the reader's words, which speak of its own grammar: what is wrong, and what to write. */
const WORDS: Partial<Record<ErrorCode, string>> = {
  BAD_INDENT: "Fields of one section begin with the same number of spaces, and what is opened by [ or { is closed",
  BAD_SCALAR_START: "A value cannot begin with this character. Put the value in quotation marks",
  BLOCK_AS_IMPLICIT_KEY: "This line has a second colon, or the next begins with more spaces than its section has",
  DUPLICATE_KEY: "This name stands twice in its section. Take one of the lines away",
  MULTILINE_IMPLICIT_KEY: NAME_AND_VALUE,
  MULTIPLE_DOCS: "A second document begins here. Take away the line --- and what follows it",
  TAB_AS_INDENT: "This line begins with a tab. Begin it with spaces",
};

function inWords(code: ErrorCode, message: string): string {
  if (code === "MISSING_CHAR" && message.startsWith("Implicit")) return sentence(NAME_AND_VALUE);
  return sentence(WORDS[code] ?? message);
}

function sentence(message: string): string {
  const first = message.split("\n")[0] ?? "";
  return first.endsWith(".") ? first : `${first}.`;
}

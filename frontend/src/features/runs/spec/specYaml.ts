/**
 * A spec as YAML. Parsing keeps the line of every error and field; writing keeps the user's comments and order.
 * JSON is valid YAML, so a spec in JSON can be pasted.
 */
import { isAlias, isMap, LineCounter, parseDocument, stringify, visit, type Document, type ErrorCode } from "yaml";
import { errorMessage } from "@/api/errors";
import { leaves, type Json } from "@/features/runs/spec/specFields";

export interface YamlError {
  line: number;
  message: string;
}

export interface ParsedSpec {
  /** Null if it cannot be parsed. */
  spec: Record<string, Json> | null;
  syntaxErrors: YamlError[];
  /** The line of a field or of its nearest section; line 1 if neither is there. */
  lineOf: (field: string) => number;
}

export function readYaml(text: string): ParsedSpec {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  // Only the first error, because later ones are mostly its consequences.
  const syntaxErrors = document.errors.slice(0, 1).map(({ code, pos, message }) => ({ line: lines.linePos(pos[0]).line, message: explain(code, message) }));
  const lineOf = (field: string) => findLine(document, lines, field.split("."));
  if (syntaxErrors.length > 0) return { spec: null, syntaxErrors, lineOf };
  if (document.contents === null) return { spec: {}, syntaxErrors: [], lineOf };
  if (!isMap(document.contents)) {
    return { spec: null, syntaxErrors: [{ line: 1, message: "This is not a list of fields. Write `name: value`, one per line." }], lineOf };
  }
  try {
    return { spec: asJson(document), syntaxErrors: [], lineOf };
  } catch (error) {
    // Circular or exponentially growing aliases.
    return { spec: null, syntaxErrors: [{ line: 1, message: sentence(errorMessage(error)) }], lineOf };
  }
}

const HEADER = "Fields that are left out keep their defaults.";

/** The initial text. The name is always there, even if empty, because every run needs one. */
export function writeYaml(spec: Record<string, Json>): string {
  const name = spec["name"] === undefined ? "name:\n" : "";
  return `# ${HEADER}\n${name}${Object.keys(spec).length === 0 ? "" : stringify(spec, { lineWidth: 0 })}`;
}

/** Updates the text to another spec; unchanged parts stay as written. */
export function updateYaml(text: string, spec: Record<string, Json>): string {
  const document = parseDocument(text);
  if (document.errors.length > 0 || !isMap(document.contents) || hasAliases(document)) return writeYaml(spec);
  const wanted = new Map(leaves(spec, ""));
  const written = new Map(leaves(asJson(document), ""));
  for (const path of written.keys()) if (!wanted.has(path)) removeField(document, path.split("."));
  for (const [path, value] of wanted) {
    if (JSON.stringify(written.get(path)) !== JSON.stringify(value)) document.setIn(path.split("."), value);
  }
  const result = document.toString({ lineWidth: 0 });
  return sameSpec(readYaml(result).spec, spec) ? result : writeYaml(spec);
}

/** Removes a field and every section that this leaves empty. */
function removeField(document: Document, path: string[]): void {
  document.deleteIn(path);
  const parent = path.slice(0, -1);
  const around = parent.length === 0 ? null : document.getIn(parent);
  if (isMap(around) && around.items.length === 0) removeField(document, parent);
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

/** Reduced to what JSON can express; a date or binary value becomes text. */
function asJson(document: Document): Record<string, Json> {
  return JSON.parse(JSON.stringify(document.toJS({ maxAliasCount: 50 }))) as Record<string, Json>;
}

function findLine(document: Document, lines: LineCounter, path: string[]): number {
  for (let depth = path.length; depth > 0; depth -= 1) {
    const around = depth === 1 ? document.contents : document.getIn(path.slice(0, depth - 1), true);
    const pair = isMap(around) ? around.items.find(({ key }) => String(key) === path[depth - 1]) : undefined;
    const at = (pair?.key as { range?: [number, number, number] } | undefined)?.range;
    if (at !== undefined) return lines.linePos(at[0]).line;
  }
  return 1;
}

const NAME_AND_VALUE = "Write `name: value`, with a colon and a space between them";

/** Replaces the parser's messages, which use the terms of its grammar, with what is wrong and what to write. */
const EXPLANATIONS: Partial<Record<ErrorCode, string>> = {
  BAD_INDENT: "Indent all fields of a section by the same number of spaces, and close every [ and {",
  BAD_SCALAR_START: "A value cannot start with this character. Put the value in quotation marks",
  BLOCK_AS_IMPLICIT_KEY: "This line has a second colon, or the next line is indented more than its section",
  DUPLICATE_KEY: "This name appears twice in its section. Remove one of the lines",
  MULTILINE_IMPLICIT_KEY: NAME_AND_VALUE,
  MULTIPLE_DOCS: "A second document starts here. Remove the line --- and everything after it",
  TAB_AS_INDENT: "This line starts with a tab. Indent it with spaces",
};

function explain(code: ErrorCode, message: string): string {
  if (code === "MISSING_CHAR" && message.startsWith("Implicit")) return sentence(NAME_AND_VALUE);
  return sentence(EXPLANATIONS[code] ?? message);
}

function sentence(message: string): string {
  const first = message.split("\n")[0] ?? "";
  return first.endsWith(".") ? first : `${first}.`;
}

/** The parts of the form: three questions that every run answers, and the settings that have defaults. */
import { isActive, type SpecField, type SpecSection, type SpecValues } from "@/features/runs/spec/specFields";
import { inSentence } from "@/lib/fieldLabel";

export interface Question {
  key: "data" | "model" | "length";
  title: string;
  help: string;
  /** Always visible. */
  fields: SpecField[];
  /** The section's other fields, folded. */
  more: SpecSection | null;
}

export interface FormParts {
  name: SpecField | undefined;
  questions: Question[];
  settings: SpecSection[];
}

const NAME = "name";
const LENGTH_FIELDS: readonly string[] = ["schedule.steps", "precision.kind", "resources.device", "resources.slots_per_node"];
/** Where a section's own label would be ambiguous. */
const LEAD_LABELS: Readonly<Record<string, string>> = { "precision.kind": "Precision", "schedule.steps": "Steps" };

export function partsOf(sections: readonly SpecSection[]): FormParts {
  const fields = sections.flatMap((section) => section.fields);
  const find = (path: string) => fields.find((field) => field.path === path);
  const section = (key: string) => sections.find((one) => one.key === key);
  const lead = new Set([NAME, "data.dataset", ...LENGTH_FIELDS]);
  const rest = ({ key, label, help, fields: own }: SpecSection, title = label): SpecSection => ({
    key,
    label: title,
    help,
    fields: own.filter(({ path }) => !lead.has(path)),
  });
  const [data, model] = [section("data"), section("model")];
  const dataset = find("data.dataset");
  const length = LENGTH_FIELDS.flatMap((path) => find(path) ?? []).map((field) => ({ ...field, label: LEAD_LABELS[field.path] ?? field.label }));
  const questions: Question[] = [
    { key: "data", title: "Data", help: "What should it learn from?", fields: dataset === undefined ? [] : [dataset], more: data === undefined ? null : rest(data, "Data settings") },
    { key: "model", title: "Model", help: "How large should it be?", fields: [], more: model === undefined ? null : rest(model, "Model settings") },
    { key: "length", title: "Length and hardware", help: "How long should it train, and on what?", fields: length, more: null },
  ];
  const settings = sections
    .filter(({ key }) => key !== "data" && key !== "model")
    .map((one) => rest(one, one.key === "" ? "Seed" : one.label))
    .filter((one) => one.fields.length > 0);
  return { name: find(NAME), questions: questions.filter((question) => question.fields.length > 0 || question.more !== null), settings };
}

/** All fields, in the order in which the form shows them. */
export function fieldsInOrder({ name, questions, settings }: FormParts): SpecField[] {
  const asked = questions.flatMap(({ fields, more }) => [...fields, ...(more?.fields ?? [])]);
  return [...(name === undefined ? [] : [name]), ...asked, ...settings.flatMap(({ fields }) => fields)];
}

/** The fields' own labels, by path. */
export function labelsOf(fields: readonly SpecField[]): Map<string, string> {
  return new Map(fields.map(({ path, label }) => [path, label]));
}

/** Labels of links to fields: a field's own, after that of its section if it is folded; an unknown field keeps its path. */
export function linkLabels(parts: FormParts, sections: readonly SpecSection[]): (path: string) => string {
  const folded = new Set([...parts.questions.flatMap(({ more }) => more?.fields ?? []), ...parts.settings.flatMap(({ fields }) => fields)]);
  const labels = fieldsInOrder(parts).map((field): [string, string] => {
    const section = sections.find(({ key }) => key !== "" && field.path.startsWith(`${key}.`));
    return [field.path, folded.has(field) && section !== undefined ? `${section.label}: ${inSentence(field.label)}` : field.label];
  });
  return (path) => labels.find(([own]) => belongsTo(own, path))?.[1] ?? path;
}

/** Fields with a value that is not their default. */
export function changedFields(fields: readonly SpecField[], values: SpecValues): SpecField[] {
  return fields.filter((field) => {
    const text = values[field.path]?.trim() ?? "";
    return text !== "" && text !== field.defaultText && isActive(field, values);
  });
}

const TOKENIZER_KIND = "data.tokenizer.kind";
const KINDS_WITH_SOURCE: ReadonlySet<string> = new Set(["uploaded", "dataset"]);

/**
 * The fields to show. A tokenizer trained on the data has no source, and context parallelism is not available yet; a
 * value that was set anyway stays visible, so that it can be fixed.
 */
export function shownFields(fields: readonly SpecField[], values: SpecValues): SpecField[] {
  return fields.filter((field) => {
    const { path } = field;
    if (!isActive(field, values)) return false;
    if ((values[path] ?? "") !== "") return true;
    if (path === "data.tokenizer.source") return KINDS_WITH_SOURCE.has(values[TOKENIZER_KIND] ?? "");
    return path !== "parallelism.context";
  });
}

/** Whether a problem belongs to this field; problems of lists name an element. */
export function belongsTo(path: string, field: string): boolean {
  return field === path || field.startsWith(`${path}.`);
}

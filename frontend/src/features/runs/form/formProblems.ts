/** The API's problems of a spec in the words of the form. */
import type { Dataset, Problem, Tokenizer } from "@/api/types";
import { REQUIRED_TEXT } from "@/components/invalidText";
import { TOKENIZER_SOURCE } from "@/features/runs/form/fieldHelp";
import { belongsTo, labelsOf } from "@/features/runs/form/formParts";
import type { SpecField, SpecValues } from "@/features/runs/spec/specFields";
import { withFieldLabels } from "@/lib/fieldLabel";

interface Form {
  /** In the order of the form. */
  fields: readonly SpecField[];
  values: SpecValues;
  datasets: readonly Dataset[];
  tokenizers: readonly Tokenizer[];
}

/**
 * Problems in the order of their fields, with labels instead of keys. One of a section without a required value is at that
 * field. The API identifies datasets and tokenizers by id, and the form by name.
 */
export function formProblems(problems: readonly Problem[], form: Form): Problem[] {
  const labels = labelsOf(form.fields);
  const placed = problems.map((problem): [number, Problem] => {
    const { field, message } = atMissingField(problem, form);
    const place = form.fields.findIndex(({ path }) => belongsTo(path, field));
    return [place < 0 ? form.fields.length : place, { ...problem, field, message: problemOfChoice(field, form) ?? withFieldLabels(message, labels) }];
  });
  return placed.sort(([one], [other]) => one - other).map(([, problem]) => problem);
}

function atMissingField(problem: Problem, { fields, values }: Form): Problem {
  const missing = fields.find(({ path, required }) => required && path.startsWith(`${problem.field}.`) && (values[path] ?? "") === "");
  return missing === undefined ? problem : { ...problem, field: missing.path, message: REQUIRED_TEXT };
}

/** What is wrong with the choice of a dataset or tokenizer; undefined if it is one of the list. */
function problemOfChoice(field: string, { values, datasets, tokenizers }: Form): string | undefined {
  const isTokenizer = field === TOKENIZER_SOURCE && values["data.tokenizer.kind"] !== "dataset";
  if (field !== "data.dataset" && field !== TOKENIZER_SOURCE) return undefined;
  const [noun, choices] = isTokenizer ? ["tokenizer", tokenizers] : ["dataset", datasets];
  const id = values[field] ?? "";
  if (id === "") return `Choose a ${noun}.`;
  return choices.some((choice) => choice.id === id || choice.name === id) ? undefined : `The chosen ${noun} does not exist in this team; it may have been deleted. Choose another one.`;
}

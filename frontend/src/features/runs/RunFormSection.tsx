import { ChevronRight } from "lucide-react";
import { Fragment, useState, type ReactNode } from "react";
import type { Dataset, Problem, SpecInfo, Tokenizer } from "@/api/types";
import { PresetSelect } from "@/features/runs/PresetSelect";
import { SpecFieldInput } from "@/features/runs/SpecFieldInput";
import { applies, NONE, type SpecField, type SpecGroup, type SpecSection, type SpecValues } from "@/lib/specForm";

interface Props {
  section: SpecSection;
  values: SpecValues;
  problems: readonly Problem[];
  datasets: readonly Dataset[];
  tokenizers: readonly Tokenizer[];
  presets: SpecInfo["presets"];
  onChange: (changed: SpecValues) => void;
  /** What stands below the fields while the section is open. */
  below?: ReactNode;
}

/** What almost every run chooses; the other sections begin folded. */
const OPEN_AT_FIRST: ReadonlySet<string> = new Set(["", "data", "model", "schedule"]);

export function RunFormSection({ section, values, problems, datasets, tokenizers, presets, onChange, below }: Props) {
  const [chosen, setChosen] = useState<boolean | null>(null);
  const fields = section.fields.filter((field) => applies(field, values) && hasMeaning(field, values));
  const wrong = problems.some(({ field }) => fields.some(({ path }) => isAt(path, field)));
  const open = chosen ?? (wrong || OPEN_AT_FIRST.has(section.key));
  const bodyId = `section-${section.key}`;
  return (
    <section className="panel min-w-0">
      <h2>
        <button
          type="button"
          aria-expanded={open}
          aria-controls={bodyId}
          className="flex min-h-10 w-full items-center gap-2 px-4 py-2 text-left"
          onClick={() => {
            setChosen(!open);
          }}
        >
          <ChevronRight aria-hidden size={14} className={`shrink-0 ${open ? "rotate-90" : ""}`} />
          <span className="font-semibold">{section.label}</span>
          <span className="min-w-0 truncate text-small text-soft">{open ? section.help : overview(fields, values)}</span>
          {wrong && <span className="ml-auto text-small text-bad">needs a change</span>}
        </button>
      </h2>
      {open && (
        <div id={bodyId} className="grid grid-cols-2 gap-x-6 gap-y-4 border-t px-4 py-4 max-tablet:grid-cols-1">
          {section.key === "model" && <PresetSelect presets={presets} values={values} onChange={onChange} />}
          {fields.map((field, index) => (
            <Fragment key={field.path}>
              {field.group !== undefined && field.group !== fields[index - 1]?.group && <GroupHeading group={field.group} />}
              <SpecFieldInput
                field={field}
                value={values[field.path] ?? ""}
                problem={problems.find((one) => isAt(field.path, one.field))?.message}
                datasets={datasets}
                tokenizers={tokenizers}
                tokenizerKind={values[TOKENIZER_KIND] ?? ""}
                onChange={(value) => {
                  onChange({ [field.path]: value });
                }}
              />
            </Fragment>
          ))}
          {below}
        </div>
      )}
    </section>
  );
}

/** Whether a problem is this field's: a list's lies at one of its parts. */
function isAt(path: string, field: string): boolean {
  return field === path || field.startsWith(`${path}.`);
}

const TOKENIZER_KIND = "data.tokenizer.kind";
const WITH_SOURCE: ReadonlySet<string> = new Set(["uploaded", "dataset"]);

/** A tokenizer made from the data has no source, and context parallelism is yet to come; what was written down all the same must be seen to be mended. */
function hasMeaning({ path }: SpecField, values: SpecValues): boolean {
  if (path === "parallelism.context") return (values[path] ?? "") !== "";
  return path !== "data.tokenizer.source" || WITH_SOURCE.has(values[TOKENIZER_KIND] ?? "") || (values[path] ?? "") !== "";
}

function GroupHeading({ group }: { group: SpecGroup }) {
  return (
    <div className="col-span-full mt-1 border-t pt-4">
      <h3 className="font-medium">{group.label}</h3>
      <p className="text-small text-soft">{group.help}</p>
    </div>
  );
}

/** A folded section in a line: what was changed, else its first defaults. */
function overview(fields: readonly SpecField[], values: SpecValues): string {
  const filled = fields.filter(({ path }) => (values[path] ?? "") !== "");
  const shown = filled.length > 0 ? filled : fields.filter(({ standard }) => standard !== "").slice(0, 3);
  const texts = shown.map((field) => `${field.label.toLowerCase()} ${told(field, values[field.path])}`);
  return texts.join(", ") + (filled.length > 0 ? "" : ", as by default");
}

function told({ canBeOff, standard }: SpecField, value: string | undefined): string {
  return canBeOff && value === NONE ? "off" : value || standard;
}

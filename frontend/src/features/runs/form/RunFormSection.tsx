import { ChevronRight } from "lucide-react";
import { Fragment, useState, type ReactNode } from "react";
import type { Dataset, Problem, SpecInfo, Tokenizer } from "@/api/types";
import { PresetSelect } from "@/features/runs/form/PresetSelect";
import { SpecFieldInput } from "@/features/runs/form/SpecFieldInput";
import { isActive, NONE, type SpecField, type SpecGroup, type SpecSection, type SpecValues } from "@/features/runs/spec/specFields";

interface Props {
  section: SpecSection;
  values: SpecValues;
  problems: readonly Problem[];
  datasets: readonly Dataset[];
  tokenizers: readonly Tokenizer[];
  presets: SpecInfo["presets"];
  onChange: (changed: SpecValues) => void;
  /** Shown below the fields while the section is open. */
  below?: ReactNode;
}

/** Sections that almost every run changes; the others start collapsed. */
const OPEN_BY_DEFAULT: ReadonlySet<string> = new Set(["", "data", "model", "schedule"]);

export function RunFormSection({ section, values, problems, datasets, tokenizers, presets, onChange, below }: Props) {
  const [userOpen, setUserOpen] = useState<boolean | null>(null);
  const fields = section.fields.filter((field) => isActive(field, values) && isRelevant(field, values));
  const hasProblem = problems.some(({ field }) => fields.some(({ path }) => belongsTo(path, field)));
  const open = userOpen ?? (hasProblem || OPEN_BY_DEFAULT.has(section.key));
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
            setUserOpen(!open);
          }}
        >
          <ChevronRight aria-hidden size={14} className={`shrink-0 ${open ? "rotate-90" : ""}`} />
          <span className="font-semibold">{section.label}</span>
          <span className="min-w-0 truncate text-small text-soft">{open ? section.help : collapsedSummary(fields, values)}</span>
          {hasProblem && <span className="ml-auto text-small text-bad">needs attention</span>}
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
                problem={problems.find((problem) => belongsTo(field.path, problem.field))?.message}
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

/** Whether a problem belongs to this field; problems of lists name an element. */
function belongsTo(path: string, field: string): boolean {
  return field === path || field.startsWith(`${path}.`);
}

const TOKENIZER_KIND = "data.tokenizer.kind";
const KINDS_WITH_SOURCE: ReadonlySet<string> = new Set(["uploaded", "dataset"]);

/**
 * A tokenizer trained on the data has no source, and context parallelism is not available yet. A value that was
 * set anyway stays visible, so that it can be fixed.
 */
function isRelevant({ path }: SpecField, values: SpecValues): boolean {
  if (path === "parallelism.context") return (values[path] ?? "") !== "";
  return path !== "data.tokenizer.source" || KINDS_WITH_SOURCE.has(values[TOKENIZER_KIND] ?? "") || (values[path] ?? "") !== "";
}

function GroupHeading({ group }: { group: SpecGroup }) {
  return (
    <div className="col-span-full mt-1 border-t pt-4">
      <h3 className="font-medium">{group.label}</h3>
      <p className="text-small text-soft">{group.help}</p>
    </div>
  );
}

/** Summary of a collapsed section: the changed fields, else the first defaults. */
function collapsedSummary(fields: readonly SpecField[], values: SpecValues): string {
  const filled = fields.filter(({ path }) => (values[path] ?? "") !== "");
  const shown = filled.length > 0 ? filled : fields.filter(({ defaultText }) => defaultText !== "").slice(0, 3);
  const texts = shown.map((field) => `${field.label.toLowerCase()} ${displayValue(field, values[field.path])}`);
  return texts.join(", ") + (filled.length > 0 ? "" : " (defaults)");
}

function displayValue({ isNullable, defaultText }: SpecField, value: string | undefined): string {
  return isNullable && value === NONE ? "off" : value || defaultText;
}

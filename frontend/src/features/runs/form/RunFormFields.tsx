import type { ReactNode } from "react";
import type { Problem, SpecCheck, SpecInfo } from "@/api/types";
import { dataText, lengthText } from "@/features/runs/form/checkedHelp";
import { FieldGrid, type FieldContext } from "@/features/runs/form/FieldGrid";
import { FieldLink } from "@/features/runs/form/FieldLink";
import { FoldedSection } from "@/features/runs/form/FoldedSection";
import { belongsTo, changedFields, shownFields, type FormParts, type Question } from "@/features/runs/form/formParts";
import { presetOf } from "@/features/runs/form/presets";
import { PresetCards } from "@/features/runs/form/PresetCards";
import { SpecFieldInput } from "@/features/runs/form/SpecFieldInput";
import { plural } from "@/lib/format";

interface Props {
  parts: FormParts;
  info: SpecInfo;
  context: FieldContext;
  check: SpecCheck | undefined;
  /** The step that a fork continues from. */
  startStep: number;
  /** Whether no node has enough memory for the run. */
  isTooLarge: boolean;
  /** Why a fork cannot change its model. */
  modelNote: ReactNode;
  /** Label of a link to a field. */
  labelOf: (field: string) => string;
  /** What the plan says about a section, by the section's key. */
  below: Readonly<Record<string, ReactNode>>;
}

/** The form: name, data, model and length in sight; everything else folded, with the number of changed values. */
export function RunFormFields({ parts, info, context, check, startStep, isTooLarge, modelNote, labelOf, below }: Props) {
  const { name, questions, settings } = parts;
  const { values, problems, onChange } = context;
  const leadContext = { ...context, help: { "data.dataset": dataText(check), "schedule.steps": lengthText(check, startStep) } };
  const changed = settings.reduce((sum, { fields }) => sum + changedFields(fields, values).length, 0);
  return (
    <>
      {name !== undefined && (
        <div className="panel px-4 py-3">
          <SpecFieldInput
            field={name}
            help=""
            value={values[name.path] ?? ""}
            problem={problems.find(({ field }) => field === name.path)?.message}
            datasets={[]}
            tokenizers={[]}
            tokenizerKind=""
            onChange={(value) => {
              onChange({ [name.path]: value });
            }}
          />
        </div>
      )}
      {questions.map((question) => {
        if (question.key !== "model") return <QuestionPanel key={question.key} question={question} context={leadContext} preset={undefined} />;
        const fields = question.more?.fields ?? [];
        const preset = presetOf(info.presets, values, fields);
        return (
          <QuestionPanel key={question.key} question={question} context={leadContext} preset={preset}>
            {modelNote !== undefined && <p>{modelNote}</p>}
            {!fields.some(({ path }) => context.isFixed?.(path)) && <PresetCards info={info} fields={fields} values={values} onChange={onChange} />}
            {isTooLarge && preset !== undefined && <PresetProblems problems={problemsOfPreset(parts, context)} labelOf={labelOf} />}
          </QuestionPanel>
        );
      })}
      {settings.length > 0 && (
        <section aria-label="Settings" className="panel min-w-0 divide-y">
          <div className="flex flex-wrap items-baseline gap-x-3 px-4 py-3">
            <h2 className="font-semibold">Settings</h2>
            <p className="text-small text-soft">
              {changed === 0 ? "All have their defaults, which suit a first run." : `${plural(changed, "value differs from its default", "values differ from their defaults")}.`}
            </p>
          </div>
          {settings.map((section) => (
            <FoldedSection key={section.key} section={section} context={context} below={below[section.key]} />
          ))}
        </section>
      )}
    </>
  );
}

/** Of a model that is too large: at its own fields, and at folded ones that still have their defaults. */
function problemsOfPreset({ questions, settings }: FormParts, { problems, values }: FieldContext): Problem[] {
  const model = questions.find(({ key }) => key === "model")?.more?.fields ?? [];
  const untouched = settings.flatMap(({ fields }) => fields).filter(({ path }) => (values[path] ?? "") === "");
  return problems.filter(({ field }) => [...model, ...untouched].some(({ path }) => belongsTo(path, field)));
}

function PresetProblems({ problems, labelOf }: { problems: readonly Problem[]; labelOf: (field: string) => string }) {
  return problems.map(({ field, message }) => (
    <p key={`${field} ${message}`} className="text-small text-bad">
      {message} <FieldLink field={field} label={labelOf(field)} />
    </p>
  ));
}

interface QuestionProps {
  question: Question;
  context: FieldContext;
  /** The name of the preset that the folded fields have the values of. */
  preset: string | undefined;
  children?: ReactNode;
}

function QuestionPanel({ question, context, preset, children }: QuestionProps) {
  const { title, help, fields, more } = question;
  return (
    <section className="panel min-w-0">
      <div className="flex flex-col gap-3 px-4 py-3">
        <div className="flex flex-wrap items-baseline gap-x-3">
          <h2 className="font-semibold">{title}</h2>
          <p className="text-small text-soft">{help}</p>
        </div>
        {fields.length > 0 && <FieldGrid fields={shownFields(fields, context.values)} context={context} />}
        {children}
      </div>
      {more !== null && more.fields.length > 0 && (
        <div className="border-t">
          <FoldedSection section={more} context={context} preset={preset} />
        </div>
      )}
    </section>
  );
}

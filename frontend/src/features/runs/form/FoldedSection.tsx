import { useState, type ReactNode } from "react";
import { CollapsibleHeader } from "@/components/CollapsibleHeader";
import { FieldGrid, type FieldContext } from "@/features/runs/form/FieldGrid";
import { sectionId } from "@/features/runs/form/fieldId";
import { belongsTo, changedFields, shownFields } from "@/features/runs/form/formParts";
import { NONE, type SpecField, type SpecSection, type SpecValues } from "@/features/runs/spec/specFields";
import { defaultValueText, fieldValueText } from "@/features/runs/spec/valueText";
import { inSentence } from "@/lib/fieldLabel";

interface Props {
  section: SpecSection;
  context: FieldContext;
  /** The preset that the values are those of: then nothing was changed by hand. */
  preset?: string | undefined;
  /** Shown below the fields while the section is open. */
  below?: ReactNode;
}

/**
 * A section whose fields have defaults: closed, it says which of them differ, and that it has a problem. It opens by itself only
 * when the run is started, because a problem often follows from a choice elsewhere, such as a preset.
 */
export function FoldedSection({ section, context, preset, below }: Props) {
  const [isOpen, setOpen] = useState(false);
  const { values, problems, isSubmitted } = context;
  const fields = shownFields(section.fields, values);
  const changed = changedFields(section.fields, values);
  const hasProblem = problems.some(({ field }) => fields.some(({ path }) => belongsTo(path, field)));
  const mustOpen = hasProblem && isSubmitted;
  const [hadToOpen, setHadToOpen] = useState(false);
  if (mustOpen !== hadToOpen) {
    setHadToOpen(mustOpen);
    if (mustOpen) setOpen(true);
  }
  if (fields.length === 0) return null;
  const bodyId = sectionId(section.key);
  return (
    <section className="min-w-0">
      <h3>
        <CollapsibleHeader
          title={section.label}
          isOpen={isOpen}
          controls={bodyId}
          onToggle={() => {
            setOpen(!isOpen);
          }}
        >
          <span className="min-w-0 flex-1 truncate text-small text-soft">{isOpen ? section.help : summaryOf(fields, changed, values)}</span>
          {hasProblem && <span className="shrink-0 text-small text-bad">needs attention</span>}
          {changed.length > 0 && (
            <span className={`shrink-0 rounded-pill bg-raised px-2 text-small ${hasProblem ? "max-tablet:hidden" : ""} ${preset === undefined ? "text-accent" : "text-soft"}`}>
              {preset === undefined ? `${changed.length} changed` : `preset ${preset}`}
            </span>
          )}
        </CollapsibleHeader>
      </h3>
      {isOpen && (
        <div id={bodyId} className="border-t px-4 py-4">
          <FieldGrid fields={fields} context={context} />
          {below}
        </div>
      )}
    </section>
  );
}

/** The changed fields, else the first defaults. */
function summaryOf(fields: readonly SpecField[], changed: readonly SpecField[], values: SpecValues): string {
  const shown = changed.length > 0 ? changed : fields.filter(({ defaultText }) => defaultText !== "").slice(0, 3);
  return shown.map((field, index) => `${groupPrefix(field, shown[index - 1])}${inSentence(field.label)} ${displayValue(field, values[field.path])}`).join(", ");
}

/** Names the group before its first field, unless a kind shows which group is used. */
function groupPrefix({ group }: SpecField, before: SpecField | undefined): string {
  return group === undefined || group.kind !== null || group === before?.group ? "" : `${inSentence(group.label)}: `;
}

function displayValue(field: SpecField, value: string | undefined): string {
  if (field.isNullable && value === NONE) return "off";
  return value ? fieldValueText(field, value) : defaultValueText(field);
}

import { fieldId, goToField } from "@/features/runs/form/fieldId";

/** A link to a field with a problem, also in a closed section; nothing if the problem is at no field. */
export function FieldLink({ field, label }: { field: string; label: string }) {
  if (field === "") return null;
  return (
    <a
      href={`#${fieldId(field)}`}
      className="text-accent underline underline-offset-2"
      onClick={(event) => {
        event.preventDefault();
        goToField(field);
      }}
    >
      {label}
    </a>
  );
}

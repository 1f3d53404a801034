import { Field } from "@/components/Field";

interface Props {
  text: string;
  onChange: (text: string) => void;
}

/** The same configuration as text: what is left out keeps its default. */
export function JsonEditor({ text, onChange }: Props) {
  return (
    <Field label="Configuration as JSON" help="The same as the API takes. What you leave out keeps its default.">
      {(control) => (
        <textarea
          {...control}
          rows={24}
          spellCheck={false}
          className="control w-full resize-y p-3 font-mono text-mono"
          value={text}
          onChange={(event) => {
            onChange(event.target.value);
          }}
        />
      )}
    </Field>
  );
}

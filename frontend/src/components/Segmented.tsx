import { useId } from "react";

interface Props<Value extends string> {
  label: string;
  value: Value;
  options: readonly Value[];
  onChange: (value: Value) => void;
}

/** A choice between a few short options, all visible, in several rows where they need them. */
export function Segmented<Value extends string>({ label, value, options, onChange }: Props<Value>) {
  // A page may have several groups with the same label; each needs its own name to be exclusive.
  const group = useId();
  return (
    <div role="radiogroup" aria-label={label} className="control inline-flex flex-wrap overflow-hidden">
      {options.map((option) => (
        <label
          key={option}
          className="-mt-px -ml-px cursor-pointer border-t border-l px-2 text-small leading-6 text-soft hover:text-text has-checked:bg-raised has-checked:text-text has-focus-visible:outline-2 has-focus-visible:-outline-offset-2 has-focus-visible:outline-accent max-tablet:leading-[42px]"
        >
          <input
            type="radio"
            name={group}
            className="sr-only"
            checked={option === value}
            onChange={() => {
              onChange(option);
            }}
          />
          {option}
        </label>
      ))}
    </div>
  );
}

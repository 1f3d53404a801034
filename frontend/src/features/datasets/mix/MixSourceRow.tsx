import type { Dataset } from "@/api/types";
import { Button } from "@/components/Button";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { TextInput } from "@/components/TextInput";
import type { SourceDraft } from "@/features/datasets/mix/mixSources";
import { share as shareText } from "@/lib/format";
import { uniqueNames } from "@/lib/uniqueNames";

interface Props {
  number: number;
  source: SourceDraft;
  share: number | null;
  datasets: readonly Dataset[];
  onChange: (source: SourceDraft) => void;
  /** Null if it is the only source. */
  onRemove: (() => void) | null;
}

/** One source of a mixture. Mixtures and unreadable datasets are not offered, because they cannot be mixed. */
export function MixSourceRow({ number, source, share, datasets, onChange, onRemove }: Props) {
  const offered = datasets.filter((dataset) => dataset.id === source.dataset || isMixable(dataset));
  const names = uniqueNames(datasets);
  return (
    <div role="group" aria-label={`Dataset ${number} of the mixture`} className="grid grid-cols-[minmax(0,2fr)_minmax(0,1fr)_minmax(0,1fr)_4rem_auto] items-end gap-x-3 gap-y-2 max-tablet:grid-cols-2">
      <div className="max-tablet:col-span-full">
        <Field label="Dataset">
          {(control) => (
            <Select
              {...control}
              required
              value={source.dataset}
              onChange={(event) => {
                onChange({ ...source, dataset: event.target.value });
              }}
            >
              <option value="">choose a dataset</option>
              {offered.map(({ id }) => (
                <option key={id} value={id}>
                  {names.get(id)}
                </option>
              ))}
            </Select>
          )}
        </Field>
      </div>
      <Field label="Version">
        {(control) => (
          <TextInput
            {...control}
            inputMode="numeric"
            autoComplete="off"
            placeholder="newest"
            value={source.version}
            onChange={(event) => {
              onChange({ ...source, version: event.target.value });
            }}
          />
        )}
      </Field>
      <Field label="Weight">
        {(control) => (
          <TextInput
            {...control}
            inputMode="decimal"
            autoComplete="off"
            required
            value={source.weight}
            onChange={(event) => {
              onChange({ ...source, weight: event.target.value });
            }}
          />
        )}
      </Field>
      <span className="leading-8 text-soft max-tablet:leading-11">{share === null ? "–" : shareText(share)}</span>
      <Button variant="quiet" className="max-tablet:justify-self-end" disabled={onRemove === null} onClick={() => onRemove?.()}>
        Remove <span className="sr-only">dataset {number}</span>
      </Button>
    </div>
  );
}

function isMixable({ versions }: Dataset): boolean {
  return (versions[0]?.curation.mix.length ?? 0) === 0 && versions.some(({ state }) => state !== "failed");
}

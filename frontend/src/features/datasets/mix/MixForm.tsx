import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useState, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import type { Dataset, CurationSpec } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Collapsible } from "@/components/Collapsible";
import { DatasetNameField } from "@/features/datasets/create/DatasetNameField";
import { CountPanel } from "@/features/datasets/curation/CountPanel";
import { mixOf, sharesOf, sourcesOf, duplicateSource } from "@/features/datasets/mix/mixSources";
import { MixSourceRow } from "@/features/datasets/mix/MixSourceRow";
import { datasetsQuery } from "@/features/datasets/queries";
import { draftOf, mistakesOf, curationOf } from "@/features/datasets/curation/curation";
import { CurationFields } from "@/features/datasets/curation/CurationFields";
import { useAllPages } from "@/lib/hooks/useAllPages";
import { uniqueNames } from "@/lib/uniqueNames";
import { randomId } from "@/lib/randomId";

export interface NewMix {
  name: string;
  curation: CurationSpec;
}

interface Props {
  team: string;
  initial: CurationSpec;
  hasName: boolean;
  submitLabel: string;
  onSubmit: (input: NewMix) => Promise<Dataset>;
  onCreated: (dataset: Dataset) => void;
}

const MAX_SOURCES = 20;

/** Mixes several datasets by weight, with counts before the mixture is created. */
export function MixForm({ team, initial, hasName, submitLabel, onSubmit, onCreated }: Props) {
  const query = useInfiniteQuery(datasetsQuery(team));
  useAllPages(query);
  const { data, error } = query;
  const [sources, setSources] = useState(() =>
    initial.mix.length > 0 ? sourcesOf(initial.mix, randomId) : [blankSource(), blankSource()],
  );
  const [draft, setDraft] = useState(() => draftOf(initial));
  const [name, setName] = useState("");
  const [wasSubmitted, setSubmitted] = useState(false);
  const datasets = data?.pages.flatMap((page) => page.items) ?? [];
  const mix = mixOf(sources);
  const shares = sharesOf(sources);
  const mistakes = mistakesOf(draft);
  const curation = curationOf(draft, mix ?? []);
  const duplicate = duplicateSource(sources);
  const ready = mix !== null && duplicate === null && Object.keys(mistakes).length === 0;
  const creation = useMutation({ mutationFn: () => onSubmit({ name, curation }), onSuccess: onCreated });

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    setSubmitted(true);
    if (ready) creation.mutate();
  }

  return (
    <form onSubmit={submit} className="flex flex-col gap-4">
      {error !== null && <ErrorNote error={error} />}
      <p className="text-soft">
        A weight is a dataset's share of the mixture's characters, relative to the others. Documents are not repeated, so the
        dataset with the least text for its weight limits the size.
      </p>
      <div className="flex flex-col gap-3">
        {sources.map((source, index) => (
          <MixSourceRow
            key={source.key}
            number={index + 1}
            source={source}
            share={shares[index] ?? null}
            datasets={datasets}
            onChange={(changed) => {
              setSources(sources.map((one) => (one.key === source.key ? changed : one)));
            }}
            onRemove={
              sources.length === 1
                ? null
                : () => {
                    setSources(sources.filter((one) => one.key !== source.key));
                  }
            }
          />
        ))}
      </div>
      <div>
        <Button
          disabled={sources.length >= MAX_SOURCES}
          onClick={() => {
            setSources([...sources, blankSource()]);
          }}
        >
          <Plus aria-hidden size={14} />
          Add a dataset
        </Button>
      </div>
      <div className="-mx-4 border-y py-1">
        <Collapsible title="Filters" summary="applied to the mixture, after each dataset's own">
          <CurationFields
            draft={draft}
            mistakes={mistakes}
            problems={creation.error instanceof ApiError ? creation.error.problems : []}
            onChange={setDraft}
          />
        </Collapsible>
      </div>
      <CountPanel
        team={team}
        dataset={null}
        version={null}
        curation={curation}
        disabled={!ready}
        names={uniqueNames(datasets)}
      />
      <div className="flex flex-wrap items-end gap-4">
        {hasName && (
          <div className="w-80 max-tablet:w-full">
            <DatasetNameField team={team} value={name} onChange={setName} />
          </div>
        )}
        <Button type="submit" variant="primary" disabled={creation.isPending}>
          {submitLabel}
        </Button>
        {!ready && <p role={wasSubmitted ? "alert" : undefined} className={`text-small ${wasSubmitted ? "text-bad" : "text-soft"}`}>{hint()}</p>}
      </div>
      {creation.error !== null && <ErrorNote error={creation.error} />}
    </form>
  );

  function hint(): string {
    const name = datasets.find(({ id }) => id === duplicate)?.name;
    if (name !== undefined) return `${name} is in two rows: remove one, and give the other the sum of their weights.`;
    return "Choose a dataset and a weight above 0 in each row.";
  }
}

function blankSource() {
  return { key: randomId(), dataset: "", version: "", weight: "1" };
}

import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useState, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import type { Dataset, Recipe } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { Fold } from "@/components/Fold";
import { TextInput } from "@/components/TextInput";
import { CountPanel } from "@/features/datasets/CountPanel";
import { mixOf, sharesOf, sourcesOf, twiceIn } from "@/features/datasets/mix";
import { MixSourceRow } from "@/features/datasets/MixSourceRow";
import { datasetsQuery } from "@/features/datasets/queries";
import { draftOf, mistakesOf, recipeOf } from "@/features/datasets/recipe";
import { RecipeFields } from "@/features/datasets/RecipeFields";
import { namesApart } from "@/lib/namesApart";
import { randomId } from "@/lib/randomId";

export interface MixWish {
  name: string;
  recipe: Recipe;
}

interface Props {
  team: string;
  start: Recipe;
  named: boolean;
  verb: string;
  make: (wish: MixWish) => Promise<Dataset>;
  onMade: (dataset: Dataset) => void;
}

const MOST_SOURCES = 20;

/** Several datasets by weight, counted before they are mixed. */
export function MixForm({ team, start, named, verb, make, onMade }: Props) {
  const { data, error } = useInfiniteQuery(datasetsQuery(team));
  const [sources, setSources] = useState(() =>
    start.mix.length > 0 ? sourcesOf(start.mix, randomId) : [blankSource(), blankSource()],
  );
  const [draft, setDraft] = useState(() => draftOf(start));
  const [name, setName] = useState("");
  const datasets = data?.pages.flatMap((page) => page.items) ?? [];
  const mix = mixOf(sources);
  const shares = sharesOf(sources);
  const mistakes = mistakesOf(draft);
  const recipe = recipeOf(draft, mix ?? []);
  const twice = twiceIn(sources);
  const ready = mix !== null && twice === null && Object.keys(mistakes).length === 0;
  const making = useMutation({ mutationFn: () => make({ name, recipe }), onSuccess: onMade });

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    if (ready) making.mutate();
  }

  return (
    <form onSubmit={submit} className="flex flex-col gap-4">
      {error !== null && <ErrorNote error={error} />}
      <p className="text-soft">
        A weight is a share of the mixture’s characters, relative to the others. No document is repeated, so the scarcest source sets
        the size.
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
          disabled={sources.length >= MOST_SOURCES}
          onClick={() => {
            setSources([...sources, blankSource()]);
          }}
        >
          <Plus aria-hidden size={14} />
          Add a dataset
        </Button>
      </div>
      <div className="-mx-4 border-y py-1">
        <Fold title="What is kept" summary="rules for the mixture, after each dataset’s own">
          <RecipeFields
            draft={draft}
            mistakes={mistakes}
            problems={making.error instanceof ApiError ? making.error.problems : []}
            onChange={setDraft}
          />
        </Fold>
      </div>
      <CountPanel
        team={team}
        dataset={null}
        version={null}
        recipe={recipe}
        disabled={!ready}
        names={namesApart(datasets)}
      />
      <div className="flex flex-wrap items-end gap-4">
        {named && (
          <div className="w-80 max-tablet:w-full">
            <Field label="Name">
              {(control) => (
                <TextInput
                  {...control}
                  required
                  maxLength={80}
                  autoComplete="off"
                  value={name}
                  onChange={(event) => {
                    setName(event.target.value);
                  }}
                />
              )}
            </Field>
          </div>
        )}
        <Button type="submit" look="primary" disabled={making.isPending || !ready}>
          {verb}
        </Button>
        {!ready && <p className="text-small text-soft">{hint()}</p>}
      </div>
      {making.error !== null && <ErrorNote error={making.error} />}
    </form>
  );

  function hint(): string {
    const name = datasets.find(({ id }) => id === twice)?.name;
    if (name !== undefined) return `${name} stands in two rows: remove one, and give the other the sum of their weights.`;
    return "Choose a dataset and a weight above 0 in each row.";
  }
}

function blankSource() {
  return { key: randomId(), dataset: "", version: "", weight: "1" };
}

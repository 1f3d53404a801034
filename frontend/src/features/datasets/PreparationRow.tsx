import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { Preparation } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Meter } from "@/components/Meter";
import { PreparationPill } from "@/features/datasets/PreparationPill";
import { cancelPreparation, datasetQuery, prepareAgain } from "@/features/datasets/queries";
import { tokenizerWords } from "@/features/datasets/tokenizerWords";
import { useMayEdit } from "@/lib/mayEdit";
import { count, plural, share, short } from "@/lib/format";

interface Props {
  team: string;
  dataset: string;
  version: number;
  preparation: Preparation;
  /** Why the version itself is of no use; null where it is. What is said there is not said again here. */
  unusable: string | null;
}

/** The tokens of a version for one tokenizer: how far they are, or how many they became. */
export function PreparationRow({ team, dataset, version, preparation, unusable }: Props) {
  const client = useQueryClient();
  const mayEdit = useMayEdit();
  const onSuccess = () => client.invalidateQueries({ queryKey: datasetQuery(team, dataset).queryKey });
  const cancel = useMutation({ mutationFn: () => cancelPreparation(team, dataset, preparation.id), onSuccess });
  const again = useMutation({ mutationFn: () => prepareAgain(team, dataset, version, preparation), onSuccess });
  const { tokenizer, state, error } = preparation;
  const refused = cancel.error ?? again.error;
  const what = tokenizerWords(tokenizer);
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2">
      <span className="w-24">
        <PreparationPill preparation={preparation} />
      </span>
      <span>
        {what}
        <span className="text-soft">, {share(preparation.validation_fraction)} for validation</span>
      </span>
      {state === "working" && <Progress preparation={preparation} />}
      {state === "ready" && <span className="ml-auto text-right max-tablet:ml-0 max-tablet:text-left">{result(preparation)}</span>}
      {mayEdit && (state === "waiting" || state === "working") && (
        <Button
          className="ml-auto"
          disabled={cancel.isPending}
          onClick={() => {
            cancel.mutate();
          }}
        >
          Cancel <span className="sr-only">preparation with {what}</span>
        </Button>
      )}
      {mayEdit && unusable === null && (state === "cancelled" || state === "failed") && (
        <Button
          className="ml-auto"
          disabled={again.isPending}
          onClick={() => {
            again.mutate();
          }}
        >
          Begin anew <span className="sr-only">with {what}</span>
        </Button>
      )}
      {error && error !== unusable && <p className="w-full text-bad">{error}</p>}
      {preparation.validation_from_tail && (
        <p className="w-full text-soft">The last 1 % of tokens is the validation split, because no document fell into it.</p>
      )}
      {refused !== null && (
        <div className="w-full">
          <ErrorNote error={refused} />
        </div>
      )}
    </li>
  );
}

function Progress({ preparation: { shards_done: done, shards_total: total, tokens_done: tokens } }: { preparation: Preparation }) {
  if (!total) return <span className="text-soft">making the tokenizer</span>;
  return (
    <>
      <Meter fraction={done / total} label="Shards written" />
      <span className="text-soft">
        tokenising shards, {count(done)} of {count(total)}; {short(tokens)} tokens so far
      </span>
    </>
  );
}

function result({ documents, train_tokens: train, validation_tokens: validation }: Preparation): string {
  const tokens = `${short(train ?? 0)} tokens to train, ${short(validation ?? 0)} to validate`;
  return documents === null || documents === undefined ? tokens : `${plural(documents, "document")}, ${tokens}`;
}

import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { Preparation } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Meter } from "@/components/Meter";
import { PreparationPill } from "@/features/datasets/PreparationPill";
import { cancelPreparation, datasetQuery, prepareDataset } from "@/features/datasets/queries";
import { tokenizerText } from "@/features/datasets/detail/tokenizerText";
import { useCanEdit } from "@/lib/permissions";
import { count, plural, share, short } from "@/lib/format";

interface Props {
  team: string;
  dataset: string;
  version: number;
  preparation: Preparation;
  /** Whether another attempt makes sense. */
  isVersionUsable: boolean;
}

/** The tokens of a version for one tokenizer: progress, or the result. */
export function PreparationRow({ team, dataset, version, preparation, isVersionUsable }: Props) {
  const client = useQueryClient();
  const canEdit = useCanEdit();
  const onSuccess = () => client.invalidateQueries({ queryKey: datasetQuery(team, dataset).queryKey });
  const cancel = useMutation({ mutationFn: () => cancelPreparation(team, dataset, preparation.id), onSuccess });
  const prepare = useMutation({ mutationFn: () => prepareDataset(team, dataset, version, preparation), onSuccess });
  const { tokenizer, state, error } = preparation;
  const actionError = cancel.error ?? prepare.error;
  const tokenizerLabel = tokenizerText(tokenizer, dataset);
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2">
      <span className="w-24 max-tablet:w-full">
        <PreparationPill preparation={preparation} />
      </span>
      <span>
        {tokenizerLabel}
        <span className="text-soft">, {share(preparation.validation_fraction)} for validation</span>
      </span>
      {state === "working" && <Progress preparation={preparation} />}
      {state === "ready" && <span className="ml-auto text-right max-tablet:ml-0 max-tablet:text-left">{resultText(preparation)}</span>}
      {canEdit && (state === "waiting" || state === "working") && (
        <Button
          className="ml-auto"
          disabled={cancel.isPending}
          onClick={() => {
            cancel.mutate();
          }}
        >
          Cancel <span className="sr-only">preparation with {tokenizerLabel}</span>
        </Button>
      )}
      {canEdit && isVersionUsable && (state === "cancelled" || state === "failed") && (
        <Button
          className="ml-auto"
          disabled={prepare.isPending}
          onClick={() => {
            prepare.mutate();
          }}
        >
          Retry <span className="sr-only">with {tokenizerLabel}</span>
        </Button>
      )}
      {error && <p className="w-full text-bad">{error}</p>}
      {preparation.validation_from_tail && (
        <p className="w-full text-soft">The last 1 % of tokens is the validation split, because no document fell into it.</p>
      )}
      {actionError !== null && (
        <div className="w-full">
          <ErrorNote error={actionError} />
        </div>
      )}
    </li>
  );
}

function Progress({ preparation: { shards_done: done, shards_total: total, tokens_done: tokens } }: { preparation: Preparation }) {
  if (!total) return <span className="text-soft">training the tokenizer</span>;
  return (
    <>
      <Meter fraction={done / total} label="Shards written" />
      <span className="text-soft">
        tokenizing shards, {count(done)} of {count(total)}; {short(tokens)} tokens so far
      </span>
    </>
  );
}

function resultText({ documents, train_tokens: train, validation_tokens: validation }: Preparation): string {
  const tokens = `${short(train ?? 0)} tokens for training, ${short(validation ?? 0)} for validation`;
  return documents === null || documents === undefined ? tokens : `${plural(documents, "document")}, ${tokens}`;
}

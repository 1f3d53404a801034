import type { Preparation } from "@/api/types";
import { Meter } from "@/components/Meter";
import { PreparationPill } from "@/features/datasets/PreparationPill";
import { count, plural, short } from "@/lib/format";

/** The tokens of a version for one tokenizer: how far they are, or how many they became. */
export function PreparationRow({ preparation }: { preparation: Preparation }) {
  const { tokenizer, state, error } = preparation;
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2">
      <span className="w-24">
        <PreparationPill preparation={preparation} />
      </span>
      <span>
        {tokenizer.kind === "bytes" ? "bytes" : `BPE of ${count(tokenizer.vocabulary ?? 4_096)}`}
        <span className="text-soft">, {(preparation.validation_fraction * 100).toPrecision(2)} % for validation</span>
      </span>
      {state === "working" && <Progress preparation={preparation} />}
      {state === "ready" && <span className="ml-auto text-right">{result(preparation)}</span>}
      {error && <p className="w-full text-bad">{error}</p>}
    </li>
  );
}

function Progress({ preparation: { shards_done: done, shards_total: total } }: { preparation: Preparation }) {
  if (!total) return <span className="text-soft">counting</span>;
  return (
    <>
      <Meter fraction={done / total} label="Shards written" />
      <span className="text-soft">
        {count(done)} of {plural(total, "shard")}
      </span>
    </>
  );
}

function result({ documents, train_tokens: train, validation_tokens: validation }: Preparation): string {
  return `${plural(documents ?? 0, "document")}, ${short(train ?? 0)} tokens to train, ${short(validation ?? 0)} to validate`;
}

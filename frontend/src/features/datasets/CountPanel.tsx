import { useMutation } from "@tanstack/react-query";
import type { Recipe, RecipeCounts } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { countRecipe } from "@/features/datasets/queries";
import { partWords } from "@/features/datasets/recipe";
import { count, plural, share, short } from "@/lib/format";

interface Props {
  team: string;
  /** The dataset whose files the recipe is for; null for a mixture. */
  dataset: string | null;
  version: number | null;
  recipe: Recipe;
  disabled: boolean;
  /** Names of datasets by their ids. */
  names: ReadonlyMap<string, string>;
}

/** What a recipe would keep, counted before it is applied. */
export function CountPanel({ team, dataset, version, recipe, disabled, names }: Props) {
  const counting = useMutation({ mutationFn: (asked: Recipe) => countRecipe(team, dataset, version, asked) });
  const stale = JSON.stringify(counting.variables) !== JSON.stringify(recipe);
  return (
    <div className="flex flex-col items-start gap-3">
      <Button
        disabled={disabled || counting.isPending}
        onClick={() => {
          counting.mutate(recipe);
        }}
      >
        {counting.isPending ? "Counting" : "Count"}
      </Button>
      {counting.error !== null && !stale && <ErrorNote error={counting.error} />}
      <div role="status">
        {counting.data !== undefined && (
          <div>
            {stale && <p className="text-small text-soft">Of the recipe before the last change:</p>}
            <Counts counts={counting.data} names={names} />
          </div>
        )}
      </div>
    </div>
  );
}

function Counts({ counts, names }: { counts: RecipeCounts; names: Props["names"] }) {
  const { documents, kept, characters, dropped, duplicates, mix, counted_fraction: counted } = counts;
  const left = Object.entries(dropped).filter(([, number]) => number > 0);
  return (
    <>
      <p>
        This keeps {count(kept)} of {plural(documents, "document")} ({kept === 0 ? "0 %" : share(kept / documents)}), {short(characters)} characters.
      </p>
      {kept === 0 && documents > 0 && <p className="text-warn">Nothing would be left to train on. Loosen or empty a rule.</p>}
      {left.length > 0 && (
        <p className="text-soft">Left out: {left.map(([part, number]) => `${count(number)} ${partWords(part)}`).join(", ")}.</p>
      )}
      {!left.some(([part]) => partWords(part) === "duplicate") && duplicates > 0 && (
        <p className="text-soft">{plural(duplicates, "exact duplicate")} would stay.</p>
      )}
      {mix.map((one) => (
        <p key={`${one.dataset} ${one.version}`} className="text-soft">
          {names.get(one.dataset) ?? one.dataset}, version {one.version}: {plural(one.documents, "document")}, {short(one.characters)}{" "}
          characters, {share(one.share)} of the mixture.
        </p>
      ))}
      {counted < 1 && (
        <p className="text-soft">Counted on {share(counted)} of the documents and scaled up; the version itself counts all.</p>
      )}
    </>
  );
}

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { SavedRecipe } from "@/api/types";
import { sentenceOf } from "@/api/errors";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Select } from "@/components/Select";
import { Time } from "@/components/Time";
import type { SpecJson } from "@/features/runs/queries";
import { deleteRecipe, recipesQuery } from "@/features/runs/recipeQueries";
import { SaveRecipe } from "@/features/runs/SaveRecipe";
import { ofRun, recipeOf, withRecipe } from "@/features/runs/recipes";
import { plural } from "@/lib/format";
import type { SpecField, SpecValues } from "@/lib/specForm";

interface Props {
  team: string;
  fields: readonly SpecField[];
  values: SpecValues;
  /** What is written; null while it cannot be read. */
  spec: SpecJson | null;
  onChoose: (values: SpecValues) => void;
}

/** Saved recipes: all that a run is but its name and its data, kept under a name for the next one. */
export function RecipeBar({ team, fields, values, spec, onChoose }: Props) {
  const { data: recipes = [], error, refetch } = useQuery(recipesQuery(team));
  const [asking, setAsking] = useState<"save" | "delete" | null>(null);
  const client = useQueryClient();
  const current = recipes.find((one) => recipeOf(one, fields, values));
  const close = () => {
    setAsking(null);
  };
  const remove = useMutation({
    mutationFn: (recipe: SavedRecipe) => deleteRecipe(team, recipe.id),
    onSuccess: async () => {
      close();
      await client.invalidateQueries({ queryKey: ["recipes", team] });
    },
  });
  return (
    <div className="flex flex-wrap items-center gap-2">
      {recipes.length > 0 && (
        <label className="flex min-w-0 items-center gap-2">
          <span className="text-soft">Recipe</span>
          <Select
            className="max-w-56"
            value={current?.id ?? ""}
            onChange={(event) => {
              const chosen = recipes.find(({ id }) => id === event.target.value);
              if (chosen !== undefined) onChoose(withRecipe(chosen, fields, values));
            }}
          >
            <option value="" disabled>
              choose a saved one
            </option>
            {recipes.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </Select>
        </label>
      )}
      <Button
        disabled={spec === null}
        onClick={() => {
          setAsking("save");
        }}
      >
        Save as recipe
      </Button>
      {current !== undefined && (
        <Button
          look="quiet"
          onClick={() => {
            remove.reset();
            setAsking("delete");
          }}
        >
          Delete recipe
        </Button>
      )}
      {error !== null && recipes.length === 0 && (
        <p role="alert" className="flex w-full flex-wrap items-center gap-x-3 text-small text-bad">
          <span>The recipes could not be listed. {sentenceOf(error)}</span>
          <Button look="quiet" onClick={() => void refetch()}>
            Try again
          </Button>
        </p>
      )}
      {current !== undefined && (
        <p className="w-full text-small text-soft">
          As {current.saved_by} saved it <Time at={current.saved} />.
          {current.problems.length > 0 && ` This version refuses ${plural(current.problems.length, "thing")} in it.`}
        </p>
      )}
      {asking === "save" && spec !== null && (
        <SaveRecipe team={team} spec={ofRun(spec)} names={recipes.map(({ name }) => name)} first={current?.name ?? ""} onClose={close} />
      )}
      {asking === "delete" && current !== undefined && (
        <ConfirmDialog
          title={`Delete the recipe ${current.name}?`}
          consequence="Runs made from it stay as they are. It cannot be undone."
          verb="Delete recipe"
          keep="Keep it"
          busy={remove.isPending}
          error={remove.error}
          onConfirm={() => {
            remove.mutate(current);
          }}
          onClose={close}
        />
      )}
    </div>
  );
}

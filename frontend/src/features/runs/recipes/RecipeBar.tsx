import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { Recipe } from "@/api/types";
import { errorMessage } from "@/api/errors";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Select } from "@/components/Select";
import { Time } from "@/components/Time";
import type { SpecJson } from "@/features/runs/queries";
import { deleteRecipe, recipesQuery } from "@/features/runs/recipes/recipeQueries";
import { SaveRecipe } from "@/features/runs/recipes/SaveRecipe";
import { recipeSpecOf, matchesRecipe, applyRecipe } from "@/features/runs/recipes/recipes";
import { plural } from "@/lib/format";
import type { SpecField, SpecValues } from "@/features/runs/spec/specFields";

interface Props {
  team: string;
  fields: readonly SpecField[];
  values: SpecValues;
  /** The edited spec; null while it cannot be parsed. */
  spec: SpecJson | null;
  onChoose: (values: SpecValues) => void;
}

/** Saved recipes: a run's configuration without its name and data, for the next run. */
export function RecipeBar({ team, fields, values, spec, onChoose }: Props) {
  const { data: recipes = [], error, refetch } = useQuery(recipesQuery(team));
  const [dialog, setDialog] = useState<"save" | "delete" | null>(null);
  const client = useQueryClient();
  const current = recipes.find((recipe) => matchesRecipe(recipe, fields, values));
  const close = () => {
    setDialog(null);
  };
  const deletion = useMutation({
    mutationFn: (recipe: Recipe) => deleteRecipe(team, recipe.id),
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
              if (chosen !== undefined) onChoose(applyRecipe(chosen, fields, values));
            }}
          >
            <option value="" disabled>
              choose a recipe
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
          setDialog("save");
        }}
      >
        Save as recipe
      </Button>
      {current !== undefined && (
        <Button
          variant="quiet"
          onClick={() => {
            deletion.reset();
            setDialog("delete");
          }}
        >
          Delete recipe
        </Button>
      )}
      {error !== null && recipes.length === 0 && (
        <p role="alert" className="flex w-full flex-wrap items-center gap-x-3 text-small text-bad">
          <span>Could not load the recipes. {errorMessage(error)}</span>
          <Button variant="quiet" onClick={() => void refetch()}>
            Try again
          </Button>
        </p>
      )}
      {current !== undefined && (
        <p className="w-full text-small text-soft">
          Saved by {current.saved_by}, <Time at={current.saved} />.
          {current.problems.length > 0 && ` This version rejects ${plural(current.problems.length, "field")} of it.`}
        </p>
      )}
      {dialog === "save" && spec !== null && (
        <SaveRecipe team={team} spec={recipeSpecOf(spec)} names={recipes.map(({ name }) => name)} initialName={current?.name ?? ""} onClose={close} />
      )}
      {dialog === "delete" && current !== undefined && (
        <ConfirmDialog
          title={`Delete the recipe ${current.name}?`}
          consequence="Runs created from it are not affected. This cannot be undone."
          confirmLabel="Delete recipe"
          cancelLabel="Cancel"
          busy={deletion.isPending}
          error={deletion.error}
          onConfirm={() => {
            deletion.mutate(current);
          }}
          onClose={close}
        />
      )}
    </div>
  );
}

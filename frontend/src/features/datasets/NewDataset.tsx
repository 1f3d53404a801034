import type { Dataset } from "@/api/types";
import { Intake } from "@/features/datasets/Intake";
import { createDataset } from "@/features/datasets/queries";
import { STANDARD_RECIPE } from "@/features/datasets/recipe";

interface Props {
  team: string;
  onMade: (dataset: Dataset) => void;
}

export function NewDataset({ team, onMade }: Props) {
  return (
    <Intake
      team={team}
      title="Drop files or folders here to make a dataset"
      start={STANDARD_RECIPE}
      named
      begin="all"
      verb="Create dataset"
      make={({ name, uploads, recipe }) => createDataset(team, name, uploads, recipe)}
      onMade={onMade}
    />
  );
}

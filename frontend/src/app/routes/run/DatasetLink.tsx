import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { datasetQuery } from "@/features/datasets/queries";

/** A dataset's name as a link; its id until the name is known or if the dataset was deleted. */
export function DatasetLink({ team, datasetId }: { team: string; datasetId: string }) {
  const { data: dataset } = useQuery(datasetQuery(team, datasetId));
  if (dataset === undefined) return datasetId;
  return (
    <Link to="/$team/datasets/$datasetId" params={{ team, datasetId }} className="text-accent underline underline-offset-2">
      {dataset.name}
    </Link>
  );
}

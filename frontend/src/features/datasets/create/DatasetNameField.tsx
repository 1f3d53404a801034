import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { NameField } from "@/components/NameField";
import { datasetsQuery } from "@/features/datasets/queries";
import { useAllPages } from "@/lib/hooks/useAllPages";

interface Props {
  team: string;
  value: string;
  onChange: (name: string) => void;
}

/** The name of a new dataset. Another dataset may have it too, but rarely should. */
export function DatasetNameField({ team, value, onChange }: Props) {
  const datasets = useInfiniteQuery({ ...datasetsQuery(team), refetchInterval: false });
  useAllPages(datasets);
  const same = datasets.data?.pages.flatMap(({ items }) => items).find(({ name }) => name === value.trim());
  return (
    <NameField
      value={value}
      onChange={onChange}
      help={
        same === undefined ? undefined : (
          <span role="status" className="text-warn">
            The team already has a{" "}
            <Link to="/$team/datasets/$datasetId" params={{ team, datasetId: same.id }} className="text-accent underline underline-offset-2">
              dataset of this name
            </Link>
            . To add files to it, open it and choose “New version”; otherwise choose another name.
          </span>
        )
      }
    />
  );
}

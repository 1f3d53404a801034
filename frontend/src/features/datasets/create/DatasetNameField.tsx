import { Link } from "@tanstack/react-router";
import { NameField } from "@/components/NameField";
import { useDatasetNames } from "@/features/datasets/useDatasetNames";

interface Props {
  team: string;
  value: string;
  onChange: (name: string) => void;
}

/** The name of a new dataset. Another dataset may have it too, but rarely should. */
export function DatasetNameField({ team, value, onChange }: Props) {
  const names = useDatasetNames(team);
  const [same] = [...names].find(([, name]) => name === value.trim()) ?? [];
  return (
    <NameField
      value={value}
      onChange={onChange}
      help={
        same === undefined ? undefined : (
          <span role="status" className="text-warn">
            The team already has a{" "}
            <Link to="/$team/datasets/$datasetId" params={{ team, datasetId: same }} className="text-accent underline underline-offset-2">
              dataset of this name
            </Link>
            . To add files to it, open it and choose “New version”; otherwise choose another name.
          </span>
        )
      }
    />
  );
}

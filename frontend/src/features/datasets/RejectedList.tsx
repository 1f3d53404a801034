import { useQuery } from "@tanstack/react-query";
import { ErrorNote } from "@/components/ErrorNote";
import { rejectedQuery } from "@/features/datasets/queries";
import { count } from "@/lib/format";

interface Props {
  team: string;
  dataset: string;
  version: number;
}

export function RejectedList({ team, dataset, version }: Props) {
  const { data, error } = useQuery(rejectedQuery(team, dataset, version));
  if (error !== null) return <ErrorNote error={error} />;
  if (data === undefined) return <p className="animate-appear text-soft">Loading</p>;
  return (
    <ul aria-label="Documents that could not be read" className="mt-2 max-h-80 overflow-y-auto">
      {data.map(({ file, line, reason }) => (
        <li key={`${file} ${line}`} className="flex flex-wrap gap-x-3 py-0.5">
          <span className="font-mono text-mono">
            {file}:{count(line)}
          </span>
          <span className="text-soft">{reason}</span>
        </li>
      ))}
    </ul>
  );
}

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
    <div role="region" aria-label="Documents that could not be read" tabIndex={0} className="max-h-80 overflow-y-auto">
      <ul>
        {data.map(({ file, line, reason }) => (
          <li key={`${file} ${line}`} className="flex flex-wrap gap-x-3 py-0.5">
            <span className="font-mono text-mono break-all">
              {file}:{count(line)}
            </span>
            <span className="text-soft">{reason}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

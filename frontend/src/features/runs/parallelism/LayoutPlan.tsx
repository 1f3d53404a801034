import { useQuery } from "@tanstack/react-query";
import { LayoutDiagrams } from "@/features/runs/parallelism/LayoutDiagrams";
import { planQuery, type SpecJson } from "@/features/runs/queries";

interface Props {
  team: string;
  spec: SpecJson;
}

/** The planned layout: ranks, memory and pipeline schedule, updated as the form changes. */
export function LayoutPlan({ team, spec }: Props) {
  const { data, error, isPlaceholderData } = useQuery(planQuery(team, spec));
  return <LayoutDiagrams plan={data} error={error} isUpdating={isPlaceholderData} />;
}

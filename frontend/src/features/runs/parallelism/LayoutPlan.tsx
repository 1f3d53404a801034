import { useQuery } from "@tanstack/react-query";
import { LayoutDiagrams } from "@/features/runs/parallelism/LayoutDiagrams";
import { planQuery, type SpecJson } from "@/features/runs/queries";

interface Props {
  team: string;
  spec: SpecJson;
  /** Whether the form shows what is wrong at a field. */
  hideError?: boolean;
}

/** The planned layout: ranks, memory and pipeline schedule, updated as the form changes. */
export function LayoutPlan({ team, spec, hideError = false }: Props) {
  const { data, error, isPlaceholderData } = useQuery(planQuery(team, spec));
  if (error !== null && hideError) return null;
  return <LayoutDiagrams plan={data} error={error} isUpdating={isPlaceholderData} />;
}

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { RenameForm } from "@/components/RenameForm";
import { renameTeam } from "@/features/teams/queries";

interface Props {
  team: string;
  name: string;
  /** The signed-in person's teams have changed. */
  onChanged: () => Promise<void>;
}

/** Changes the team's name; for owners. */
export function TeamName({ team, name, onChanged }: Props) {
  const client = useQueryClient();
  const rename = useMutation({
    mutationFn: (next: string) => renameTeam(team, next),
    onSuccess: () => Promise.all([client.invalidateQueries({ queryKey: ["team", team] }), onChanged()]),
  });
  return (
    <RenameForm
      label="Team name"
      help={`Addresses and scripts contain the short name ${team}, which does not change.`}
      name={name}
      busy={rename.isPending}
      error={rename.error}
      onSave={rename.mutate}
    />
  );
}

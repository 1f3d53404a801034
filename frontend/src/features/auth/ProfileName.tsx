import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRouter } from "@tanstack/react-router";
import type { Me } from "@/api/types";
import { RenameForm } from "@/components/RenameForm";
import { changeName, meQuery } from "@/features/auth/queries";

/** Changes the person's name. */
export function ProfileName({ me }: { me: Me }) {
  const client = useQueryClient();
  const router = useRouter();
  const change = useMutation({
    mutationFn: changeName,
    onSuccess: async (changed) => {
      client.setQueryData(meQuery.queryKey, changed);
      await Promise.all([router.invalidate(), client.invalidateQueries({ queryKey: ["team"] })]);
    },
  });
  return (
    <RenameForm
      label="Your name"
      help="Runs and datasets keep the name under which you created them."
      name={me.name}
      busy={change.isPending}
      error={change.error}
      onSave={change.mutate}
    />
  );
}

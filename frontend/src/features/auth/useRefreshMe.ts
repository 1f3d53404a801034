import { useQueryClient } from "@tanstack/react-query";
import { useRouter } from "@tanstack/react-router";
import { meQuery } from "@/features/auth/queries";

/** After a change of the person's teams or roles: a function that loads them and shows the pages again with them. */
export function useRefreshMe(): () => Promise<void> {
  const client = useQueryClient();
  const router = useRouter();
  return async () => {
    await client.query({ ...meQuery, staleTime: 0 });
    await router.invalidate();
  };
}

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { signOut } from "@/features/auth/queries";

/** Signs out and leads to the sign-in page. If the server refuses, the person stays signed in and must learn of it. */
export function useSignOut() {
  const client = useQueryClient();
  const navigate = useNavigate();
  return useMutation({
    mutationFn: signOut,
    onSuccess: async () => {
      await navigate({ to: "/sign-in" });
      client.clear();
    },
  });
}

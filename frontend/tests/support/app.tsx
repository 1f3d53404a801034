import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { act, render } from "@testing-library/react";
import { queryClient } from "@/app/queryClient";
import { router } from "@/app/router";

/** Shows the entire application at an address, even if another test left a different page. */
export async function openApp(address: string) {
  router.history.push(address);
  render(
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>,
  );
  await act(() => router.load());
}

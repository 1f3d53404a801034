import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { act, render } from "@testing-library/react";
import { queryClient } from "@/app/queryClient";
import { router } from "@/app/router";

/** Shows the whole application at an address, whichever page another test left. */
export async function openApp(address: string) {
  router.history.push(address);
  render(
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>,
  );
  await act(() => router.load());
}

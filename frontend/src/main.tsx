import "@/styles/tokens.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { queryClient } from "@/app/queryClient";
import { reportCaughtError } from "@/app/reportCaughtError";
import { router } from "@/app/router";
import { startServiceWorker } from "@/app/upgrades";

const root = document.getElementById("root");
if (root !== null) {
  createRoot(root, { onCaughtError: reportCaughtError }).render(
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  );
}

// Vite's development server builds no service worker.
if (import.meta.env.PROD) startServiceWorker();

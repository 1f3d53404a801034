import { useSyncExternalStore } from "react";

/** The current colour scheme, for drawings that cannot follow CSS. */
export function useColorScheme(): "light" | "dark" {
  return useSyncExternalStore(subscribe, current);
}

const system = window.matchMedia("(prefers-color-scheme: dark)");

function current(): "light" | "dark" {
  const chosen = document.documentElement.dataset["theme"];
  if (chosen === "light" || chosen === "dark") return chosen;
  return system.matches ? "dark" : "light";
}

function subscribe(listener: () => void): () => void {
  const observer = new MutationObserver(listener);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  system.addEventListener("change", listener);
  return () => {
    observer.disconnect();
    system.removeEventListener("change", listener);
  };
}

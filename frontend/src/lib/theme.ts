/** Light, dark or the system's theme. Stored in this browser. */
export type Theme = "system" | "light" | "dark";

export const THEME_LABELS: Record<Theme, string> = { system: "System theme", light: "Light theme", dark: "Dark theme" };

const KEY = "trainwright.theme";

export function storedTheme(): Theme {
  const stored = localStorage.getItem(KEY);
  return stored === "light" || stored === "dark" ? stored : "system";
}

export function applyTheme(theme: Theme): void {
  if (theme === "system") {
    delete document.documentElement.dataset["theme"];
    localStorage.removeItem(KEY);
  } else {
    document.documentElement.dataset["theme"] = theme;
    localStorage.setItem(KEY, theme);
  }
}

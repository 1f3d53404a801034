import { useParams } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { sectionTitle, type SettingsSectionId } from "@/app/routes/settings/settingsPages";

interface Props {
  id: SettingsSectionId;
  help?: string | undefined;
  children: ReactNode;
}

/** One part of the settings, shown on its page only. */
export function Section({ id, help, children }: Props) {
  const { page } = useParams({ from: "/$team/settings/$page" });
  const title = sectionTitle(page, id);
  if (title === undefined) return null;
  return (
    <section id={id}>
      <h3 className="mb-2 font-semibold">{title}</h3>
      {help !== undefined && <p className="mb-3 text-soft">{help}</p>}
      {children}
    </section>
  );
}

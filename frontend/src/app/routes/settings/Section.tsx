import type { ReactNode } from "react";
import { sectionTitle, type SettingsSectionId } from "@/app/routes/settings/settingsSections";

interface Props {
  id: SettingsSectionId;
  help?: string | undefined;
  children: ReactNode;
}

/** One part of the settings. */
export function Section({ id, help, children }: Props) {
  return (
    <section id={id} className="scroll-mt-4">
      <h3 className="mb-2 font-semibold">{sectionTitle(id)}</h3>
      {help !== undefined && <p className="mb-3 text-soft">{help}</p>}
      {children}
    </section>
  );
}

import { DropdownMenu } from "radix-ui";
import type { ReactNode } from "react";

interface Props {
  trigger: ReactNode;
  children: ReactNode;
}

/** A dropdown menu. */
export function Menu({ trigger, children }: Props) {
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Content
        align="start"
        sideOffset={4}
        collisionPadding={8}
        className="z-20 min-w-48 rounded-box border border-line bg-surface p-1 shadow-float"
      >
        {children}
      </DropdownMenu.Content>
    </DropdownMenu.Root>
  );
}

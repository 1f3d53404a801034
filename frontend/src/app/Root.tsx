import { Outlet } from "@tanstack/react-router";
import { ConnectionBanner } from "@/app/ConnectionBanner";

/** Around everything, signed in or not: the word that nothing answers. */
export function Root() {
  return (
    <>
      <ConnectionBanner />
      <Outlet />
    </>
  );
}

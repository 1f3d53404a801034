import { Outlet } from "@tanstack/react-router";
import { ConnectionBanner } from "@/app/frame/ConnectionBanner";

/** Wraps every page, signed in or not, with the connection banner. */
export function Root() {
  return (
    <>
      <ConnectionBanner />
      <Outlet />
    </>
  );
}

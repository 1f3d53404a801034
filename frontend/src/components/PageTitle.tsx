/** What the browser's tab and history call this page. */
export function PageTitle({ children }: { children: string }) {
  return <title>{`${children} · Trainwright`}</title>;
}

/** The page's title in the browser tab and history. */
export function PageTitle({ children }: { children: string }) {
  return <title>{`${children} · Trainwright`}</title>;
}

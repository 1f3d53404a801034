/** The outline of a page while its first data loads; invisible for the first 150 ms, so that it does not flash. */
export function Skeleton({ rows = 6, height = 32 }: { rows?: number; height?: number }) {
  return (
    <div role="status" aria-label="Loading" className="panel animate-appear overflow-hidden">
      {Array.from({ length: rows }, (_, row) => (
        <div key={row} className="flex items-center border-b px-4 last:border-b-0" style={{ height }}>
          <div className="h-2.5 rounded-pill bg-raised" style={{ width: `${30 + ((row * 37) % 50)}%` }} />
        </div>
      ))}
    </div>
  );
}

interface Props {
  /** 0 to 1. */
  fraction: number;
  label: string;
  className?: string;
}

/** How much of something is done or used. */
export function Meter({ fraction, label, className = "w-36" }: Props) {
  const share = Math.min(1, Math.max(0, fraction));
  return (
    <div
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(share * 100)}
      className={`h-1.5 overflow-hidden rounded-pill bg-line ${className}`}
    >
      <div className="h-full bg-accent" style={{ width: `${share * 100}%` }} />
    </div>
  );
}

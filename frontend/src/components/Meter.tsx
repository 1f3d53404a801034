interface Props {
  /** 0 to 1. */
  fraction: number;
  label: string;
  className?: string;
}

/** A progress or usage bar. */
export function Meter({ fraction, label, className = "w-36" }: Props) {
  const clamped = Math.min(1, Math.max(0, fraction));
  return (
    <div
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(clamped * 100)}
      className={`h-1.5 overflow-hidden rounded-pill bg-line ${className}`}
    >
      <div className="h-full bg-accent" style={{ width: `${clamped * 100}%` }} />
    </div>
  );
}

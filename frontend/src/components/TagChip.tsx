interface Props {
  name: string;
  /** What a click does; without it the chip is not a button. */
  action?: string;
  onPress?: () => void;
  /** Shown after the name. */
  suffix?: string;
}

/** A tag. */
export function TagChip({ name, action, onPress, suffix }: Props) {
  const className = "inline-flex h-5 max-w-32 min-w-10 items-center gap-1 rounded-box border border-line bg-raised px-1.5 text-small text-soft";
  const label = <span className="truncate">{name}</span>;
  if (onPress === undefined) {
    return (
      <span className={className} title={name}>
        {label}
      </span>
    );
  }
  return (
    <button
      type="button"
      className={`${className} relative z-1 hover:border-control hover:text-text max-tablet:h-8`}
      title={action}
      aria-label={`${name}: ${action ?? ""}`}
      onClick={onPress}
    >
      {label}
      {suffix !== undefined && <span aria-hidden>{suffix}</span>}
    </button>
  );
}

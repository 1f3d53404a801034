interface Props {
  name: string;
  /** What a press does, in words; without it the chip only tells. */
  verb?: string;
  onPress?: () => void;
  /** After the name. */
  sign?: string;
}

/** One tag. */
export function TagChip({ name, verb, onPress, sign }: Props) {
  const look = "inline-flex h-5 max-w-32 shrink-0 items-center gap-1 rounded-box border border-line bg-raised px-1.5 text-small text-soft";
  const words = <span className="truncate">{name}</span>;
  if (onPress === undefined) {
    return (
      <span className={look} title={name}>
        {words}
      </span>
    );
  }
  return (
    <button
      type="button"
      className={`${look} relative z-1 hover:border-control hover:text-text max-tablet:h-8`}
      title={verb}
      aria-label={`${name}: ${verb ?? ""}`}
      onClick={onPress}
    >
      {words}
      {sign !== undefined && <span aria-hidden>{sign}</span>}
    </button>
  );
}

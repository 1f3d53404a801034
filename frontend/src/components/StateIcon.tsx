export type Shape =
  | "hollow-circle"
  | "half-circle"
  | "circle"
  | "three-quarter-circle"
  | "hollow-square"
  | "square"
  | "retry"
  | "bars"
  | "tick"
  | "cross";

/** The icons of run states, drawn with equal weight. A state never relies on colour alone. */
export function StateIcon({ shape }: { shape: Shape }) {
  return (
    <svg aria-hidden width={12} height={12} viewBox="0 0 12 12" fill="none" stroke="currentColor" strokeWidth={1.75} className="shrink-0">
      {drawing(shape)}
    </svg>
  );
}

function drawing(shape: Shape) {
  switch (shape) {
    case "hollow-circle":
      return <circle cx={6} cy={6} r={4.1} />;
    case "half-circle":
      return (
        <>
          <circle cx={6} cy={6} r={4.1} />
          <path d="M6 2a4 4 0 0 1 0 8z" fill="currentColor" stroke="none" />
        </>
      );
    case "circle":
      return <circle cx={6} cy={6} r={5} fill="currentColor" stroke="none" />;
    case "three-quarter-circle":
      return (
        <>
          <circle cx={6} cy={6} r={4.1} />
          <path d="M6 6V2a4 4 0 1 1-4 4z" fill="currentColor" stroke="none" />
        </>
      );
    case "hollow-square":
      return <rect x={1.9} y={1.9} width={8.2} height={8.2} />;
    case "square":
      return <rect x={1} y={1} width={10} height={10} fill="currentColor" stroke="none" />;
    case "retry":
      return <path d="M10.2 6a4.2 4.2 0 1 1-1.3-3M9.2 .6v2.7H6.5" strokeLinecap="round" strokeLinejoin="round" strokeWidth={1.5} />;
    case "bars":
      return <path d="M4 2v8M8 2v8" strokeWidth={2.25} />;
    case "tick":
      return <path d="m1.5 6.5 3 3 6-7" strokeLinecap="round" strokeLinejoin="round" />;
    case "cross":
      return <path d="m2 2 8 8M10 2l-8 8" strokeLinecap="round" />;
  }
}

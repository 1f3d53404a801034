import { useQuery } from "@tanstack/react-query";
import { healthQuery } from "@/lib/healthQuery";

/** Names the parts of the platform that do not work. Empty while all work. */
export function PlatformProblems() {
  const problems = useQuery(healthQuery).data?.problems ?? [];
  if (problems.length === 0) return null;
  return (
    <div role="status" className="mb-4 rounded-box border border-warn px-3 py-2">
      <p className="font-medium text-warn">Part of the platform does not work</p>
      <ul>
        {problems.map(({ part, message }) => (
          <li key={part}>
            The {part} {message}
          </li>
        ))}
      </ul>
    </div>
  );
}

import { useQuery } from "@tanstack/react-query";
import { healthQuery } from "@/lib/healthQuery";

/** The version of the server, for a report of a problem; nothing until it is known. */
export function PlatformVersion() {
  const version = useQuery(healthQuery).data?.version;
  return version === undefined ? null : <p className="text-soft">Trainwright {version}</p>;
}

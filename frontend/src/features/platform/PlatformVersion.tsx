import { useQuery } from "@tanstack/react-query";
import { healthQuery } from "@/lib/healthQuery";

/** The version of the server, for problem reports. Empty until it is known. */
export function PlatformVersion() {
  const version = useQuery(healthQuery).data?.version;
  return version === undefined ? null : <p className="text-soft">Trainwright {version}</p>;
}

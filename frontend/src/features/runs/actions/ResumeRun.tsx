import { useMutation, useQueryClient } from "@tanstack/react-query";
import { errorMessage } from "@/api/errors";
import type { Run } from "@/api/types";
import { resumeRun } from "@/features/runs/actions/runRequests";
import { storeRun } from "@/features/runs/queries";

/** Resumes a paused run from a list. */
export function ResumeRun({ team, run }: { team: string; run: Run }) {
  const client = useQueryClient();
  const resume = useMutation({
    mutationFn: () => resumeRun(team, run.id),
    onSuccess: async (resumed) => {
      await storeRun(client, team, resumed);
      return client.invalidateQueries({ queryKey: ["runs", team] });
    },
  });
  return (
    <>
      <button
        type="button"
        disabled={resume.isPending}
        aria-label={`Resume ${run.name}`}
        className="font-medium text-accent underline-offset-2 hover:underline disabled:text-soft max-tablet:min-h-11"
        onClick={() => {
          resume.mutate();
        }}
      >
        Resume
      </button>
      {resume.error !== null && (
        <span role="alert" className="text-bad">
          {errorMessage(resume.error)}
        </span>
      )}
    </>
  );
}

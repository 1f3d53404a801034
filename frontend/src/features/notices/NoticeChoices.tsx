import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { ErrorNote } from "@/components/ErrorNote";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { chooseNotices, KIND_LABELS, noticeSettingsQuery } from "@/features/notices/noticeQueries";

/** Which notices the person gets, in the app and by email. */
export function NoticeChoices() {
  const { data } = useSuspenseQuery(noticeSettingsQuery);
  const client = useQueryClient();
  const { mutate, isPending, error } = useMutation({
    mutationFn: chooseNotices,
    onSuccess: (settings) => {
      client.setQueryData(noticeSettingsQuery.queryKey, settings);
    },
  });
  return (
    <div className="flex flex-col gap-3">
      <Table
        label="Notices"
        head={
          <>
            <Th>event</Th>
            <Th>in the app</Th>
            <Th>by email</Th>
          </>
        }
      >
        {data.choices.map((choice) => (
          <tr key={choice.kind} className={rowClass}>
            <Td>{KIND_LABELS[choice.kind]}</Td>
            {(["app", "mail"] as const).map((channel) => (
              <Td key={channel}>
                <label className="grid w-fit place-items-center max-tablet:-my-1 max-tablet:-ml-3 max-tablet:size-11">
                  <input
                    type="checkbox"
                    aria-label={`${KIND_LABELS[choice.kind]}: ${channel === "app" ? "in the app" : "by email"}`}
                    checked={choice[channel]}
                    disabled={isPending || (channel === "mail" && !choice.mail && data.mail_problem !== "")}
                    onChange={({ target }) => {
                      mutate({ ...choice, [channel]: target.checked });
                    }}
                  />
                </label>
              </Td>
            ))}
          </tr>
        ))}
      </Table>
      <p className="text-soft">{data.mail_problem === "" ? `Emails go to ${data.address}.` : data.mail_problem}</p>
      {error !== null && <ErrorNote error={error} />}
    </div>
  );
}

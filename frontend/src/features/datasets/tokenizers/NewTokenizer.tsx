import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef, useState, type SubmitEvent } from "react";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { inputClass } from "@/components/TextInput";
import { createTokenizer, tokenizersQuery } from "@/features/datasets/queries";
import { deleteUpload, uploadSingle, removeConsumed } from "@/features/datasets/upload/uploadStore";
import { NameField } from "@/components/NameField";

/** Uploads a `tokenizer.json`. If it cannot be used, the error is shown and the upload is deleted. */
export function NewTokenizer({ team }: { team: string }) {
  const [name, setName] = useState("");
  const [file, setFile] = useState<File | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const client = useQueryClient();
  const creation = useMutation({
    mutationFn: async (chosen: File) => {
      const uploadId = await uploadSingle(team, chosen);
      try {
        return await createTokenizer(team, name, uploadId);
      } catch (error) {
        await deleteUpload(team, uploadId).catch(() => undefined);
        throw error;
      } finally {
        removeConsumed([uploadId]);
      }
    },
    onSuccess: () => {
      setName("");
      setFile(null);
      if (input.current !== null) input.current.value = "";
      void client.invalidateQueries({ queryKey: tokenizersQuery(team).queryKey });
      void client.invalidateQueries({ queryKey: ["team", team] });
    },
  });

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    if (file !== null) creation.mutate(file);
  }

  return (
    <form onSubmit={submit} className="flex flex-col gap-3">
      <div className="flex flex-wrap items-start gap-4">
        <div className="w-80 max-tablet:w-full">
          <Field label="Tokenizer file" help="A tokenizer.json file of the Hugging Face tokenizers library.">
            {(control) => (
              <input
                {...control}
                ref={input}
                type="file"
                required={file === null}
                accept=".json"
                className={`${inputClass} py-1 text-small file:mr-3 file:font-medium file:text-accent max-tablet:py-3`}
                onChange={(event) => {
                  const chosen = event.target.files?.[0] ?? null;
                  setFile(chosen);
                  creation.reset();
                  if (chosen !== null && name === "") setName(chosen.name.replace(/\.json$/i, "").slice(0, 80));
                }}
              />
            )}
          </Field>
        </div>
        <div className="w-64 max-tablet:w-full">
          <NameField label="Tokenizer name" value={name} onChange={setName} />
        </div>
        <Button type="submit" className="mt-[24px] max-tablet:mt-0" disabled={creation.isPending}>
          {creation.isPending ? "Uploading" : "Upload tokenizer"}
        </Button>
      </div>
      {creation.error !== null && <ErrorNote error={creation.error} />}
    </form>
  );
}

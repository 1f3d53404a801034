import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef, useState, type SubmitEvent } from "react";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { inputClass, TextInput } from "@/components/TextInput";
import { createTokenizer, tokenizersQuery } from "@/features/datasets/queries";
import { dropUpload, sendAside, taken } from "@/features/datasets/uploads";

/** Uploads a `tokenizer.json`; one that cannot be used is refused with its reason, and leaves nothing behind. */
export function NewTokenizer({ team }: { team: string }) {
  const [name, setName] = useState("");
  const [file, setFile] = useState<File | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const client = useQueryClient();
  const making = useMutation({
    mutationFn: async (chosen: File) => {
      const uploadId = await sendAside(team, chosen);
      try {
        return await createTokenizer(team, name, uploadId);
      } catch (error) {
        await dropUpload(team, uploadId).catch(() => undefined);
        throw error;
      } finally {
        taken([uploadId]);
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
    if (file !== null) making.mutate(file);
  }

  return (
    <form onSubmit={submit} className="flex flex-col gap-3">
      <div className="flex flex-wrap items-start gap-4">
        <div className="w-80 max-tablet:w-full">
          <Field label="Tokenizer file" help="A tokenizer.json of the tokenizers library, as models on the Hugging Face Hub have.">
            {(control) => (
              <input
                {...control}
                ref={input}
                type="file"
                accept=".json"
                className={`${inputClass} py-1 text-small file:mr-3 file:font-medium file:text-accent max-tablet:py-3`}
                onChange={(event) => {
                  const chosen = event.target.files?.[0] ?? null;
                  setFile(chosen);
                  making.reset();
                  if (chosen !== null && name === "") setName(chosen.name.replace(/\.json$/i, "").slice(0, 80));
                }}
              />
            )}
          </Field>
        </div>
        <div className="w-64 max-tablet:w-full">
          <Field label="Tokenizer name">
            {(control) => (
              <TextInput
                {...control}
                required
                maxLength={80}
                autoComplete="off"
                value={name}
                onChange={(event) => {
                  setName(event.target.value);
                }}
              />
            )}
          </Field>
        </div>
        <Button type="submit" className="mt-6 max-tablet:mt-0" disabled={making.isPending || file === null}>
          {making.isPending ? "Uploading" : "Upload tokenizer"}
        </Button>
      </div>
      {making.error !== null && <ErrorNote error={making.error} />}
    </form>
  );
}

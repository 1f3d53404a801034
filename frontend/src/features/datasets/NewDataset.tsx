import { useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import type { Dataset } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { DropZone } from "@/features/datasets/DropZone";
import { UploadList } from "@/features/datasets/UploadList";
import { startUpload } from "@/features/datasets/uploads";
import { bytes, plural } from "@/lib/format";

interface Props {
  team: string;
  onUploaded: (dataset: Dataset) => void;
}

/** Files in, a name, and off they go. */
export function NewDataset({ team, onUploaded }: Props) {
  const [files, setFiles] = useState<File[]>([]);
  const [name, setName] = useState("");
  const client = useQueryClient();

  function close(): void {
    setFiles([]);
  }

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    const onDone = (dataset: Dataset) => {
      void client.invalidateQueries({ queryKey: ["datasets", team] });
      onUploaded(dataset);
    };
    startUpload({ team, dataset: null, name, files, onDone });
    close();
  }

  return (
    <>
      <DropZone
        title="Drop files here to make a dataset"
        onFiles={(taken) => {
          setFiles(taken);
          setName(taken[0]?.name.replace(/\.[^.]+$/, "") ?? "");
        }}
      />
      <UploadList team={team} dataset={null} />
      {files.length > 0 && (
        <Dialog
          title="New dataset"
          onClose={close}
          actions={
            <>
              <Button onClick={close}>Not now</Button>
              <Button type="submit" form="new-dataset" look="primary">
                Upload {plural(files.length, "file")}
              </Button>
            </>
          }
        >
          <form id="new-dataset" onSubmit={submit} className="text-text">
            <Field label="Name" help={`${plural(files.length, "file")}, ${bytes(files.reduce((sum, { size }) => sum + size, 0))}.`}>
              {(control) => (
                <TextInput
                  {...control}
                  required
                  maxLength={80}
                  value={name}
                  onChange={(event) => {
                    setName(event.target.value);
                  }}
                />
              )}
            </Field>
          </form>
        </Dialog>
      )}
    </>
  );
}

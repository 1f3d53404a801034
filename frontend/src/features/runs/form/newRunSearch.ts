/** The address of the new-run page. */
export interface NewRunSearch {
  /** The dataset to train on. */
  dataset?: string;
  /** The run to clone. */
  like?: string;
  /** The run to fork, and the checkpoint to continue from; the newest one if not given. */
  fork?: string;
  checkpoint?: string;
  view?: "YAML";
}

export function parseNewRunSearch({ dataset, like, fork, checkpoint, view }: Record<string, unknown>): NewRunSearch {
  return {
    ...textParam("dataset", dataset),
    ...textParam("like", like),
    ...textParam("fork", fork),
    ...textParam("checkpoint", checkpoint),
    ...(view === "YAML" ? { view } : {}),
  };
}

function textParam<Key extends string>(key: Key, value: unknown): Partial<Record<Key, string>> {
  return typeof value === "string" && value !== "" ? ({ [key]: value } as Partial<Record<Key, string>>) : {};
}

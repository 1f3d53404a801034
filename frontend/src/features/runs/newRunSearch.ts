/** What the address of a new run says. */
export interface NewRunSearch {
  /** The data that it is to train on. */
  dataset?: string;
  /** The run that it is to be like. */
  like?: string;
  /** The run that it goes on from, and at which of its states; the newest where none is named. */
  fork?: string;
  checkpoint?: string;
  view?: "YAML";
}

export function parseNewRunSearch({ dataset, like, fork, checkpoint, view }: Record<string, unknown>): NewRunSearch {
  return {
    ...word("dataset", dataset),
    ...word("like", like),
    ...word("fork", fork),
    ...word("checkpoint", checkpoint),
    ...(view === "YAML" ? { view } : {}),
  };
}

function word<Key extends string>(key: Key, value: unknown): Partial<Record<Key, string>> {
  return typeof value === "string" && value !== "" ? ({ [key]: value } as Partial<Record<Key, string>>) : {};
}

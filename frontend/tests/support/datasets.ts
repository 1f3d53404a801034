import type { Dataset, DatasetVersion, Preparation } from "@/api/types";
import { DEFAULT_CURATION } from "@/features/datasets/curation/curation";

/** A ready preparation as the API returns it, with the fields that a test needs. */
export function aPreparation(change: Partial<Preparation> = {}): Preparation {
  return {
    id: "prep_1",
    state: "ready",
    tokenizer: { kind: "bpe", source: null, vocabulary: null },
    validation_fraction: 0.01,
    shards_done: 1,
    shards_total: 1,
    tokens_done: 91_000,
    documents: 1_150,
    rejected: 2,
    train_tokens: 90_000,
    validation_tokens: 1_000,
    validation_from_tail: false,
    lengths: [{ upto: 64, documents: 1_000 }, { upto: 128, documents: 150 }],
    error: null,
    ...change,
  };
}

/** A ready version as the API returns it. */
export function aVersion(change: Partial<DatasetVersion> = {}): DatasetVersion {
  return {
    number: 1,
    created: "2026-11-21T13:00:00Z",
    bytes: 4_096,
    files: [{ name: "a.jsonl", bytes: 4_096, digest: "aa".repeat(32), format: "jsonl", compression: "gzip", documents: 1_200, rejected: 2 }],
    curation: DEFAULT_CURATION,
    state: "ready",
    error: null,
    read_bytes: 4_096,
    statistics: {
      documents: 1_200,
      kept: 1_150,
      characters: 350_000,
      rejected: 2,
      duplicates: 30,
      dropped: { duplicate: 30, min_characters: 20 },
      lengths: [{ upto: 256, documents: 900 }, { upto: 512, documents: 250 }],
      mix: [],
    },
    changes: [],
    preparations: [aPreparation()],
    ...change,
  };
}

/** A dataset as the API returns it. */
export function aDataset(change: Partial<Dataset> = {}): Dataset {
  return { id: "ds_1", name: "letters", created: "2026-11-21T13:00:00Z", created_by: "ana", versions: [aVersion()], same_files_as: [], ...change };
}

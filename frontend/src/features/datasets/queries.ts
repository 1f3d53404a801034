import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body, WHOLE_LIST } from "@/api/client";
import type { Dataset, DatasetVersion, Preparation, Preview, CurationSpec, CurationCounts, Tokenizer, Upload } from "@/api/types";

/** The team's datasets whose names contain all of the words, page by page. */
export function datasetsQuery(team: string, words = "") {
  return infiniteQueryOptions({
    queryKey: words === "" ? ["datasets", team] : ["datasets", team, words],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/datasets", {
          params: { path: { team }, query: { ...(words === "" ? {} : { q: words }), ...(pageParam === null ? {} : { cursor: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
    refetchInterval: 3_000,
  });
}

/** Ids of the datasets with this name. */
export async function datasetIdsNamed(team: string, name: string): Promise<string[]> {
  const { items } = body(await api.GET("/api/v1/teams/{team}/datasets", { params: { path: { team }, query: WHOLE_LIST } }));
  return items.filter((dataset) => dataset.name === name).map(({ id }) => id);
}

export function datasetQuery(team: string, dataset: string) {
  return queryOptions({
    queryKey: ["dataset", team, dataset],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/datasets/{dataset}", { params: { path: { team, dataset } }, signal })),
    refetchInterval: (query) => (isProcessing(query.state.data) ? 1_000 : 5_000),
  });
}

export function documentsQuery(team: string, dataset: string, version: number) {
  return infiniteQueryOptions({
    queryKey: ["dataset", team, dataset, "documents", version],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/datasets/{dataset}/versions/{number}/documents", {
          params: {
            path: { team, dataset, number: version },
            query: pageParam === null ? { limit: 20 } : { limit: 20, cursor: pageParam },
          },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
  });
}

export function rejectedQuery(team: string, dataset: string, version: number) {
  return queryOptions({
    queryKey: ["dataset", team, dataset, "rejected", version],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/datasets/{dataset}/versions/{number}/rejected", {
          params: { path: { team, dataset, number: version } },
          signal,
        }),
      ),
  });
}

export function uploadsQuery(team: string) {
  return queryOptions({
    queryKey: ["uploads", team],
    queryFn: async ({ signal }): Promise<Upload[]> =>
      body(await api.GET("/api/v1/teams/{team}/uploads", { params: { path: { team }, query: WHOLE_LIST }, signal })).items,
    refetchInterval: 5_000,
  });
}

/** The first rows of uploaded files; the previous preview stays while another field is previewed. */
export function previewQuery(team: string, uploads: readonly string[], read: CurationSpec["read"], standard: CurationSpec) {
  return queryOptions({
    queryKey: ["preview", team, uploads, read],
    queryFn: async ({ signal }): Promise<Preview> =>
      body(
        await api.POST("/api/v1/teams/{team}/uploads/preview", {
          params: { path: { team } },
          body: { uploads: [...uploads], curation: { ...standard, read } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    staleTime: "static",
  });
}

export interface NewDatasetInput {
  name: string;
  uploads: string[];
  curation: CurationSpec;
}

export async function createDataset(team: string, dataset: NewDatasetInput, idempotencyKey: string): Promise<Dataset> {
  return body(
    await api.POST("/api/v1/teams/{team}/datasets", {
      params: { path: { team }, header: { "idempotency-key": idempotencyKey } },
      body: dataset,
    }),
  );
}

export interface NewVersionInput {
  /** Null: the files of `base`. */
  uploads: readonly string[] | null;
  base: number;
  keepFiles: boolean;
  curation: CurationSpec;
}

export async function createVersion(team: string, dataset: string, version: NewVersionInput, idempotencyKey: string): Promise<Dataset> {
  const { uploads, base, keepFiles, curation } = version;
  return body(
    await api.POST("/api/v1/teams/{team}/datasets/{dataset}/versions", {
      params: { path: { team, dataset }, header: { "idempotency-key": idempotencyKey } },
      body: { uploads: uploads === null ? null : [...uploads], base, keep_files: keepFiles, curation },
    }),
  );
}

export async function countCuration(
  team: string,
  dataset: string | null,
  version: number | null,
  curation: CurationSpec,
): Promise<CurationCounts> {
  return body(
    await api.POST("/api/v1/teams/{team}/datasets/count", {
      params: { path: { team } },
      body: { dataset, version, curation },
    }),
  );
}

export async function deleteDataset(team: string, dataset: string): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/datasets/{dataset}", { params: { path: { team, dataset } } });
}

export async function deleteVersion(team: string, dataset: string, version: number): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/datasets/{dataset}/versions/{number}", {
    params: { path: { team, dataset, number: version } },
  });
}

export async function cancelPreparation(team: string, dataset: string, preparation: string): Promise<Preparation> {
  return body(
    await api.POST("/api/v1/teams/{team}/datasets/{dataset}/preparations/{preparation}/cancel", {
      params: { path: { team, dataset, preparation } },
    }),
  );
}

/** Starts a preparation again; finished work is reused. */
export async function prepareDataset(
  team: string,
  dataset: string,
  version: number,
  { tokenizer, validation_fraction }: Preparation,
): Promise<Preparation> {
  return body(
    await api.POST("/api/v1/teams/{team}/datasets/{dataset}/preparations", {
      params: { path: { team, dataset } },
      body: { version, tokenizer, validation_fraction },
    }),
  );
}

export function tokenizersQuery(team: string) {
  return queryOptions({
    queryKey: ["tokenizers", team],
    queryFn: async ({ signal }): Promise<Tokenizer[]> =>
      body(await api.GET("/api/v1/teams/{team}/tokenizers", { params: { path: { team } }, signal })),
  });
}

export async function createTokenizer(team: string, name: string, upload: string): Promise<Tokenizer> {
  return body(
    await api.POST("/api/v1/teams/{team}/tokenizers", { params: { path: { team } }, body: { name, upload } }),
  );
}

export async function deleteTokenizer(team: string, tokenizer: string): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/tokenizers/{tokenizer}", { params: { path: { team, tokenizer } } });
}

export function isVersionProcessing({ state, preparations }: DatasetVersion): boolean {
  if (state === "waiting" || state === "reading") return true;
  return preparations.some((preparation) => preparation.state === "waiting" || preparation.state === "working");
}

function isProcessing(dataset: Dataset | undefined): boolean {
  return dataset?.versions.some(isVersionProcessing) ?? false;
}

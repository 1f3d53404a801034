import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { Dataset, DatasetVersion, Preparation, Preview, Recipe, RecipeCounts, Tokenizer, Upload } from "@/api/types";

export function datasetsQuery(team: string) {
  return infiniteQueryOptions({
    queryKey: ["datasets", team],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/datasets", {
          params: { path: { team }, query: pageParam === null ? {} : { cursor: pageParam } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
    refetchInterval: 3_000,
  });
}

export function datasetQuery(team: string, dataset: string) {
  return queryOptions({
    queryKey: ["dataset", team, dataset],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/datasets/{dataset}", { params: { path: { team, dataset } }, signal })),
    refetchInterval: (query) => (isMoving(query.state.data) ? 1_000 : 5_000),
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
      body(await api.GET("/api/v1/teams/{team}/uploads", { params: { path: { team } }, signal })),
    refetchInterval: 5_000,
  });
}

/** What files hold, by their first rows; the old look stays while another field is looked at. */
export function previewQuery(team: string, uploads: readonly string[], read: Recipe["read"], standard: Recipe) {
  return queryOptions({
    queryKey: ["preview", team, uploads, read],
    queryFn: async ({ signal }): Promise<Preview> =>
      body(
        await api.POST("/api/v1/teams/{team}/uploads/preview", {
          params: { path: { team } },
          body: { uploads: [...uploads], recipe: { ...standard, read } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    staleTime: "static",
  });
}

export async function createDataset(team: string, name: string, uploads: readonly string[], recipe: Recipe): Promise<Dataset> {
  return body(
    await api.POST("/api/v1/teams/{team}/datasets", {
      params: { path: { team } },
      body: { name, uploads: [...uploads], recipe },
    }),
  );
}

export interface VersionWish {
  /** Null: the files of `base`. */
  uploads: readonly string[] | null;
  base: number;
  keepFiles: boolean;
  recipe: Recipe;
}

export async function createVersion(team: string, dataset: string, wish: VersionWish): Promise<Dataset> {
  const { uploads, base, keepFiles, recipe } = wish;
  return body(
    await api.POST("/api/v1/teams/{team}/datasets/{dataset}/versions", {
      params: { path: { team, dataset } },
      body: { uploads: uploads === null ? null : [...uploads], base, keep_files: keepFiles, recipe },
    }),
  );
}

export async function countRecipe(
  team: string,
  dataset: string | null,
  version: number | null,
  recipe: Recipe,
): Promise<RecipeCounts> {
  return body(
    await api.POST("/api/v1/teams/{team}/datasets/count", {
      params: { path: { team } },
      body: { dataset, version, recipe },
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

/** Asks for a preparation again; what is done of it is kept. */
export async function prepareAgain(
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

export function isVersionMoving({ state, preparations }: DatasetVersion): boolean {
  if (state === "waiting" || state === "reading") return true;
  return preparations.some((one) => one.state === "waiting" || one.state === "working");
}

function isMoving(dataset: Dataset | undefined): boolean {
  return dataset?.versions.some(isVersionMoving) ?? false;
}

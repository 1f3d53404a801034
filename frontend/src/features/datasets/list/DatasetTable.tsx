import { keepPreviousData, useInfiniteQuery, useSuspenseInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "@tanstack/react-router";
import type { Dataset, DatasetVersion } from "@/api/types";
import { Button } from "@/components/Button";
import { Bytes } from "@/components/Bytes";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { ShortId } from "@/components/ShortId";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { TextInput } from "@/components/TextInput";
import { Th } from "@/components/Th";
import { Time } from "@/components/Time";
import { PreparationPill } from "@/features/datasets/PreparationPill";
import { datasetsQuery } from "@/features/datasets/queries";
import { useUploads } from "@/features/datasets/upload/useUploads";
import { VersionPill } from "@/features/datasets/VersionPill";
import { short } from "@/lib/format";
import { useDebounced } from "@/lib/hooks/useDebounced";
import { idsOfSharedNames } from "@/lib/sharedNames";

const SEARCH_DELAY_MS = 250;

/** From this many datasets on, a search is offered. */
const SEARCH_FROM = 8;

/** The team's datasets, newest first, with a search by name once there are several. */
export function DatasetTable({ team }: { team: string }) {
  const { data: all } = useSuspenseInfiniteQuery(datasetsQuery(team));
  const [words, setWords] = useState("");
  const query = useInfiniteQuery({ ...datasetsQuery(team, useDebounced(words.trim(), SEARCH_DELAY_MS)), placeholderData: keepPreviousData });
  const { data, error, hasNextPage, fetchNextPage, isFetchingNextPage } = query;
  const datasets = data?.pages.flatMap((page) => page.items) ?? [];
  const sharedNames = idsOfSharedNames(datasets);
  const count = all.pages.flatMap((page) => page.items).length;
  if (count === 0) return <NoDatasets team={team} />;
  return (
    <div className="flex flex-col items-start gap-4">
      {count >= SEARCH_FROM && (
        <TextInput
          type="search"
          aria-label="Search datasets by name"
          placeholder="Name"
          maxLength={200}
          className="max-w-80"
          value={words}
          onChange={(event) => {
            setWords(event.target.value);
          }}
        />
      )}
      {error !== null && <ErrorNote error={error} />}
      {data !== undefined && datasets.length === 0 && (
        <NoMatches
          onShowAll={() => {
            setWords("");
          }}
        />
      )}
      {datasets.length > 0 && (
        <div className="w-full">
          <Table
            label="Datasets"
            head={
              <>
                <Th className="w-32">state</Th>
                <Th>name</Th>
                <Th className="text-right max-tablet:hidden">version</Th>
                <Th className="text-right">size</Th>
                <Th className="text-right max-tablet:hidden">tokens</Th>
                <Th className="text-right max-tablet:hidden">uploaded</Th>
                <Th className="max-tablet:hidden">by</Th>
              </>
            }
          >
            {datasets.map((dataset) => (
              <Row key={dataset.id} team={team} dataset={dataset} hasUniqueName={!sharedNames.has(dataset.id)} />
            ))}
          </Table>
        </div>
      )}
      {hasNextPage && (
        <Button disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          Show older datasets
        </Button>
      )}
    </div>
  );
}

function Row({ team, dataset, hasUniqueName }: { team: string; dataset: Dataset; hasUniqueName: boolean }) {
  const version = dataset.versions[0];
  const preparation = version?.preparations[0];
  const tokens = preparation?.train_tokens;
  return (
    <tr className={`relative ${rowClass}`}>
      <Td>{statePill(version)}</Td>
      <Td className="max-w-80 min-w-32 max-tablet:max-w-44">
        <Link
          to="/$team/datasets/$datasetId"
          params={{ team, datasetId: dataset.id }}
          className="flex items-baseline gap-1 font-medium after:absolute after:inset-0"
          title={dataset.name}
        >
          <span className="truncate">{dataset.name}</span>
          {!hasUniqueName && <ShortId id={dataset.id} />}
        </Link>
      </Td>
      <Td className="text-right max-tablet:hidden">{version?.number ?? "–"}</Td>
      <Td className="text-right">{version === undefined || version.curation.mix.length > 0 ? "–" : <Bytes value={version.bytes} />}</Td>
      <Td className="text-right max-tablet:hidden">
        {tokens === null || tokens === undefined ? "–" : short(tokens + (preparation?.validation_tokens ?? 0))}
      </Td>
      <Td className="text-right text-soft max-tablet:hidden">
        <Time at={version?.created ?? dataset.created} />
      </Td>
      <Td className="max-w-32 truncate text-soft max-tablet:hidden">{dataset.created_by ?? "–"}</Td>
    </tr>
  );
}

/** The next thing a dataset needs before its first run: to be read, then to be tokenized. */
function statePill(version: DatasetVersion | undefined) {
  if (version === undefined) return "–";
  const preparation = version.preparations[0];
  if (version.state !== "ready" || preparation === undefined) return <VersionPill version={version} />;
  return <PreparationPill preparation={preparation} />;
}

function NoMatches({ onShowAll }: { onShowAll: () => void }) {
  return (
    <EmptyState title="No matching datasets.">
      <Button onClick={onShowAll}>Show all datasets</Button>
    </EmptyState>
  );
}

/** Says how to begin, unless files were dropped already: then the form above leads on. */
function NoDatasets({ team }: { team: string }) {
  const { rows } = useUploads(team, "this browser's");
  if (rows.length > 0) return null;
  return <EmptyState title="No datasets yet.">Drop files above to create your first dataset.</EmptyState>;
}

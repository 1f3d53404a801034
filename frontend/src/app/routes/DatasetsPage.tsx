import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import type { Dataset } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { Button } from "@/components/Button";
import { ForEditors } from "@/components/ForEditors";
import { Skeleton } from "@/components/Skeleton";
import { TitleRow } from "@/components/TitleRow";
import { DatasetTable } from "@/features/datasets/list/DatasetTable";
import { MixDatasets } from "@/features/datasets/mix/MixDatasets";
import { NewDataset } from "@/features/datasets/create/NewDataset";
import { datasetsQuery } from "@/features/datasets/queries";
import { NewTokenizer } from "@/features/datasets/tokenizers/NewTokenizer";
import { TokenizerTable } from "@/features/datasets/tokenizers/TokenizerTable";
import { PlatformProblems } from "@/features/platform/PlatformProblems";
import { StorageMeter } from "@/features/teams/usage/StorageMeter";

export function DatasetsPage() {
  const { team } = useParams({ from: "/$team" });
  const { data } = useInfiniteQuery(datasetsQuery(team));
  const [mixing, setMixing] = useState(false);
  const canMix = data !== undefined && data.pages.flatMap((page) => page.items).length > 1;
  const navigate = useNavigate();

  function open({ id }: Dataset): void {
    void navigate({ to: "/$team/datasets/$datasetId", params: { team, datasetId: id } });
  }

  return (
    <>
      <TitleRow
        title="Datasets"
        actions={
          <>
            <AsyncBoundary skeleton={null}>
              <StorageMeter team={team} />
            </AsyncBoundary>
            {canMix && (
              <ForEditors>
                <Button
                  aria-expanded={mixing}
                  onClick={() => {
                    setMixing(!mixing);
                  }}
                >
                  Mix datasets
                </Button>
              </ForEditors>
            )}
          </>
        }
      />
      <PlatformProblems />
      <div className="flex flex-col gap-4">
        {canMix && mixing && (
          <MixDatasets
            team={team}
            onCreated={open}
            onClose={() => {
              setMixing(false);
            }}
          />
        )}
        <ForEditors>
          <NewDataset team={team} onCreated={open} />
        </ForEditors>
        <AsyncBoundary>
          <DatasetTable team={team} />
        </AsyncBoundary>
        <section className="mt-6 flex flex-col gap-3">
          <h2 className="font-semibold">
            Tokenizers
          </h2>
          <ForEditors>
            <NewTokenizer team={team} />
          </ForEditors>
          <AsyncBoundary skeleton={<Skeleton rows={2} />}>
            <TokenizerTable team={team} />
          </AsyncBoundary>
        </section>
      </div>
    </>
  );
}

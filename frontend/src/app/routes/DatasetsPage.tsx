import { useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import type { Dataset } from "@/api/types";
import { Boundary } from "@/components/Boundary";
import { Button } from "@/components/Button";
import { ForEditors } from "@/components/ForEditors";
import { Skeleton } from "@/components/Skeleton";
import { TitleRow } from "@/components/TitleRow";
import { DatasetTable } from "@/features/datasets/DatasetTable";
import { MixDatasets } from "@/features/datasets/MixDatasets";
import { NewDataset } from "@/features/datasets/NewDataset";
import { NewTokenizer } from "@/features/datasets/NewTokenizer";
import { TokenizerTable } from "@/features/datasets/TokenizerTable";
import { StorageMeter } from "@/features/teams/StorageMeter";

export function DatasetsPage() {
  const { team } = useParams({ from: "/$team" });
  const [mixing, setMixing] = useState(false);
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
            <Boundary skeleton={null}>
              <StorageMeter team={team} />
            </Boundary>
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
          </>
        }
      />
      <div className="flex flex-col gap-4">
        {mixing && (
          <MixDatasets
            team={team}
            onMade={open}
            onClose={() => {
              setMixing(false);
            }}
          />
        )}
        <ForEditors>
          <NewDataset team={team} onMade={open} />
        </ForEditors>
        <Boundary>
          <DatasetTable team={team} />
        </Boundary>
        <section className="mt-6 flex flex-col gap-3">
          <h2 className="font-semibold">
            Tokenizers
          </h2>
          <ForEditors>
            <NewTokenizer team={team} />
          </ForEditors>
          <Boundary skeleton={<Skeleton rows={2} />}>
            <TokenizerTable team={team} />
          </Boundary>
        </section>
      </div>
    </>
  );
}

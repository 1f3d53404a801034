import { useInfiniteQuery } from "@tanstack/react-query";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { DocumentText } from "@/features/datasets/DocumentText";
import { documentsQuery } from "@/features/datasets/queries";
import { dropReason } from "@/features/datasets/curation/curation";
import { plural } from "@/lib/format";

interface Props {
  team: string;
  dataset: string;
  version: number;
}

/** The documents of a version in order, including dropped ones. */
export function DocumentList({ team, dataset, version }: Props) {
  const { data, error, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(documentsQuery(team, dataset, version));
  if (error !== null) return <ErrorNote error={error} />;
  if (data === undefined) return <p className="animate-appear text-soft">Loading</p>;
  const documents = data.pages.flatMap((page) => page.items);
  if (documents.length === 0) return <p className="text-soft">No documents.</p>;
  return (
    <div className="flex flex-col items-start gap-3">
      <ol aria-label="Documents" className="w-full">
        {documents.map(({ number, file, line, characters, text, kept, dropped_by: part }) => (
          <li key={number} className="border-t py-2 first:border-t-0">
            <p className="mb-1 flex flex-wrap gap-x-3 text-small text-soft">
              <span className="font-mono break-all">
                {file}:{line}
              </span>
              <span>{plural(characters, "character")}</span>
              {!kept && <span className="text-warn">dropped: {part === null || part === undefined ? "by the curation" : dropReason(part)}</span>}
            </p>
            <DocumentText text={text} isDimmed={!kept} />
          </li>
        ))}
      </ol>
      {hasNextPage && (
        <Button disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          Show more documents
        </Button>
      )}
    </div>
  );
}

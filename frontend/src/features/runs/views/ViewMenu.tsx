import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ChevronDown } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { useState } from "react";
import type { RunView, SavedView } from "@/api/types";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Menu } from "@/components/Menu";
import { MenuAction } from "@/components/MenuAction";
import { MenuItem } from "@/components/MenuItem";
import { SaveView } from "@/features/runs/views/SaveView";
import { deleteView, isSameView, viewsQuery } from "@/features/runs/views/views";
import { useIsSettled } from "@/lib/hooks/useIsSettled";

interface Props {
  team: string;
  /** What the table shows. */
  view: RunView;
  onChoose: (view: RunView) => void;
}

/** One's saved views of the table: choose, save and delete them. */
export function ViewMenu({ team, view, onChoose }: Props) {
  const [dialog, setDialog] = useState<"save" | SavedView | null>(null);
  const isSettled = useIsSettled();
  const { data: views = [] } = useQuery({ ...viewsQuery(team), enabled: isSettled || dialog !== null });
  const client = useQueryClient();
  const current = views.find((saved) => isSameView(saved.view, view));
  const close = () => {
    setDialog(null);
  };
  const deletion = useMutation({
    mutationFn: ({ id }: SavedView) => deleteView(team, id),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: viewsQuery(team).queryKey });
      close();
    },
  });
  return (
    <>
      <Menu
        trigger={
          <Button>
            <span className="max-w-48 truncate">{current === undefined ? "Views" : `View ${current.name}`}</span>
            <ChevronDown aria-hidden size={14} className="text-soft max-tablet:hidden" />
          </Button>
        }
      >
        {views.map((saved) => (
          <MenuItem
            key={saved.id}
            checked={saved === current}
            onSelect={() => {
              onChoose(saved.view);
            }}
          >
            {saved.name}
          </MenuItem>
        ))}
        {views.length > 0 && <DropdownMenu.Separator className="my-1 border-t" />}
        {current === undefined ? (
          <MenuAction
            onSelect={() => {
              setDialog("save");
            }}
          >
            Save this view…
          </MenuAction>
        ) : (
          <MenuAction
            danger
            onSelect={() => {
              deletion.reset();
              setDialog(current);
            }}
          >
            Delete {current.name}…
          </MenuAction>
        )}
      </Menu>
      {dialog === "save" && <SaveView team={team} view={view} names={views.map(({ name }) => name)} onClose={close} />}
      {dialog !== null && dialog !== "save" && (
        <ConfirmDialog
          title={`Delete the view ${dialog.name}?`}
          consequence="No run is affected. This cannot be undone."
          confirmLabel="Delete view"
          cancelLabel="Cancel"
          busy={deletion.isPending}
          error={deletion.error}
          onConfirm={() => {
            deletion.mutate(dialog);
          }}
          onClose={close}
        />
      )}
    </>
  );
}

import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { beforeEach, expect, it, vi } from "vitest";
import { RunFilterBar } from "@/features/runs/list/RunFilterBar";
import type { RunFilter } from "@/features/runs/list/runFilter";

const seen = vi.fn<(filter: RunFilter) => void>();

function Bar() {
  const [filter, setFilter] = useState<RunFilter>({});
  return (
    <RunFilterBar
      filter={filter}
      onFilter={(next) => {
        seen(next);
        setFilter(next);
      }}
      onClear={vi.fn()}
      selecting={false}
      onSelecting={vi.fn()}
    />
  );
}

/** Longer than the field waits for more input. */
const PAUSE_MS = 500;

const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));

beforeEach(() => {
  seen.mockClear();
  render(<Bar />);
});

it("waits for the end of a term that is typed slowly", async () => {
  const field = screen.getByRole("searchbox");
  await userEvent.type(field, "pilot tag:wee");
  await pause();
  await userEvent.type(field, "k-47 ");
  await waitFor(() => {
    expect(seen).toHaveBeenLastCalledWith({ q: "pilot", tag: ["week-47"] });
  });
  expect(seen.mock.calls.flatMap(([{ tag }]) => tag ?? [])).toEqual(["week-47"]);
  expect(screen.getByDisplayValue("pilot")).toBe(field);
});

it("accepts a term at the end on Enter", async () => {
  await userEvent.type(screen.getByRole("searchbox"), "tag:night{Enter}");
  await waitFor(() => {
    expect(seen).toHaveBeenLastCalledWith({ q: undefined, tag: ["night"] });
  });
});

import { render } from "@testing-library/react";
import { expect, it } from "vitest";
import { clockTime } from "@/lib/format";
import { LogRow } from "@/features/runs/log/LogRow";

function marked(text: string, find: string): (string | null)[] {
  const { container } = render(<LogRow number={1} text={text} time={undefined} find={find} isTarget={false} digits={3} onSelect={() => undefined} />);
  expect(container.textContent).toBe(`1${text}`);
  return [...container.querySelectorAll("mark")].map(({ textContent }) => textContent);
}

it("highlights matches in any case, even after letters that change length", () => {
  expect(marked("İstanbul: Loss is high, loss is low", "loss")).toEqual(["Loss", "loss"]);
});

it("shows when the line arrived, with the date in its title, and nothing for logs without times", () => {
  const row = (time: string | undefined) => render(<LogRow number={1} text="step 1" time={time} find="" isTarget={false} digits={3} onSelect={() => undefined} />).container;
  const shown = row("2026-11-20T10:00:07Z").querySelector("time");
  expect(shown?.textContent).toBe(clockTime("2026-11-20T10:00:07Z"));
  expect(shown?.title).toContain("20 Nov 2026");
  // Phones have room for the messages only.
  expect(shown?.className).toContain("max-tablet:hidden");
  expect(row(undefined).textContent).toBe("1step 1");
});

it("matches the search text literally", () => {
  expect(marked("loss (high) at [0], c:\\runs", "(HIGH)")).toEqual(["(high)"]);
  expect(marked("loss (high) at [0], c:\\runs", "\\")).toEqual(["\\"]);
  expect(marked("loss is high", ".")).toEqual([]);
});

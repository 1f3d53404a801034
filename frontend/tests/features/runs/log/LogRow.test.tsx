import { render } from "@testing-library/react";
import { expect, it } from "vitest";
import { LogRow } from "@/features/runs/log/LogRow";

function marked(text: string, find: string): (string | null)[] {
  const { container } = render(<LogRow number={1} text={text} find={find} isTarget={false} digits={3} onSelect={() => undefined} />);
  expect(container.textContent).toBe(`1${text}`);
  return [...container.querySelectorAll("mark")].map(({ textContent }) => textContent);
}

it("highlights matches in any case, even after letters that change length", () => {
  expect(marked("İstanbul: Loss is high, loss is low", "loss")).toEqual(["Loss", "loss"]);
});

it("matches the search text literally", () => {
  expect(marked("loss (high) at [0], c:\\runs", "(HIGH)")).toEqual(["(high)"]);
  expect(marked("loss (high) at [0], c:\\runs", "\\")).toEqual(["\\"]);
  expect(marked("loss is high", ".")).toEqual([]);
});

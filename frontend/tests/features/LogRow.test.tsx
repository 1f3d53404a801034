import { render } from "@testing-library/react";
import { expect, it } from "vitest";
import { LogRow } from "@/features/runs/LogRow";

function marked(text: string, find: string): (string | null)[] {
  const { container } = render(<LogRow number={1} text={text} find={find} chosen={false} digits={3} onChoose={() => undefined} />);
  expect(container.textContent).toBe(`1${text}`);
  return [...container.querySelectorAll("mark")].map(({ textContent }) => textContent);
}

it("marks what was searched for, in capitals or not, behind letters that change their length", () => {
  expect(marked("İstanbul: Loss is high, loss is low", "loss")).toEqual(["Loss", "loss"]);
});

it("takes what was searched for to the letter", () => {
  expect(marked("loss (high) at [0], c:\\runs", "(HIGH)")).toEqual(["(high)"]);
  expect(marked("loss (high) at [0], c:\\runs", "\\")).toEqual(["\\"]);
  expect(marked("loss is high", ".")).toEqual([]);
});

import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import { DailyUsageChart } from "@/features/teams/usage/DailyUsageChart";

const DAYS = ["2026-11-21", "2026-11-22"];

/** The chart of a person who used that many hours on the second day. */
function open(hours: number) {
  const people = [{ key: "usr_1", name: "Ada", total: hours, hours: [0, hours] }];
  return render(<DailyUsageChart device="cpu" days={DAYS.map((day, index) => ({ day, hours: index * hours }))} people={people} />);
}

it.each([
  [0.008, ["0.01", "0.005", "0"]],
  [0.00003, ["5e-5", "2.5e-5", "0"]],
  [0.04, ["0.05", "0.025", "0"]],
  [4_100, ["5,000", "2,500", "0"]],
])("numbers the axis exactly for %s hours", (hours, ticks) => {
  open(hours);
  const axis = screen.getByRole("img").firstElementChild;
  expect([...(axis?.children ?? [])].map(({ textContent }) => textContent)).toEqual(ticks);
});

it("is a chart or a table, as other charts are", async () => {
  open(3);
  const toggle = screen.getByRole("button", { name: "CPU slot-hours by day as a table" });
  expect(toggle.textContent).toBe("table");
  await userEvent.click(toggle);
  expect(toggle.textContent).toBe("chart");
  expect(screen.getAllByRole("row").map(({ textContent }) => textContent)).toEqual(["day (UTC)CPU slot-hours", "22 Nov3", "21 Nov0"]);
});

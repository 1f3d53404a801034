import { render, screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it } from "vitest";
import { DocumentText } from "@/features/datasets/DocumentText";

it.each([
  ["many lines", "a\nb\nc\nd\ne\nf", "a\nb\nc\nd\ne…"],
  ["many characters", "x".repeat(400), `${"x".repeat(300)}…`],
])("shows the start of a document of %s, and all of it on demand", async (_, text, start) => {
  const { container } = render(<DocumentText text={text} />);
  expect(container.querySelector("p")?.textContent).toBe(start);
  await userEvent.click(screen.getByRole("button", { name: "more" }));
  expect(container.querySelector("p")?.textContent).toBe(text);
});

it("shows a short document whole", () => {
  const { container } = render(<DocumentText text={"a\nb"} />);
  expect(container.querySelector("p")?.textContent).toBe("a\nb");
  expect(screen.queryByRole("button")).toBeNull();
});

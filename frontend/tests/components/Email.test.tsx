import { render } from "@testing-library/react";
import { expect, it } from "vitest";
import { Email } from "@/components/Email";

it("can wrap after an @ or a period only, and is copied as it is", () => {
  const { container } = render(<Email address="ada.l@example.org" />);
  expect(container.innerHTML).toBe("ada.<wbr>l@<wbr>example.<wbr>org");
  expect(container.textContent).toBe("ada.l@example.org");
});

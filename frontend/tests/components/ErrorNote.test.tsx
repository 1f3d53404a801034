import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { ApiError } from "@/api/errors";
import { ErrorNote } from "@/components/ErrorNote";

const ID = "0123456789abcdef0123456789abcdef";

it("shows a request id for server failures, and not for errors that the user can fix", () => {
  const body = { code: "wrong_password", detail: "Email or password is wrong.", request_id: ID };
  const { rerender } = render(<ErrorNote error={new ApiError(401, body)} />);
  expect(screen.getByRole("alert").textContent).toBe("Email or password is wrong.");
  rerender(<ErrorNote error={new ApiError(500, { ...body, code: "internal", detail: "The server failed." })} />);
  expect(screen.getByRole("alert").textContent).toContain(ID);
});

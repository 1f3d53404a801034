import { fireEvent, render, screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { useState } from "react";
import { expect, it, vi } from "vitest";
import { Field } from "@/components/Field";
import { NOT_BLANK } from "@/components/invalidText";
import { Select } from "@/components/Select";
import { TextInput } from "@/components/TextInput";

function SomeForm({ onSubmit }: { onSubmit: () => void }) {
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onSubmit();
      }}
    >
      <Field label="Name">{(control) => <TextInput {...control} required pattern={NOT_BLANK} />}</Field>
      <Field label="Email">{(control) => <TextInput {...control} type="email" required />}</Field>
      <Field label="Node">{(control) => <TextInput {...control} required pattern="[a-z]+" title="Lowercase letters only" />}</Field>
      <Field label="Dataset">
        {(control) => (
          <Select {...control} required defaultValue="">
            <option value="">choose</option>
            <option>corpus</option>
          </Select>
        )}
      </Field>
      <button type="submit">Create</button>
    </form>
  );
}

const descriptionOf = (label: string) => screen.getByLabelText(label).getAttribute("aria-describedby") === null ? null : document.getElementById(screen.getByLabelText(label).getAttribute("aria-describedby") ?? "")?.textContent;

it("shows at each field what is missing once the form is submitted, and goes to the first", async () => {
  const onSubmit = vi.fn();
  render(<SomeForm onSubmit={onSubmit} />);
  expect(["Name", "Email", "Node", "Dataset"].map(descriptionOf)).toEqual([null, null, null, null]);
  await userEvent.type(screen.getByLabelText("Name"), " ");
  await userEvent.type(screen.getByLabelText("Email"), "ada");
  await userEvent.type(screen.getByLabelText("Node"), "GPU");
  await userEvent.click(screen.getByRole("button"));
  expect(["Name", "Email", "Node", "Dataset"].map(descriptionOf)).toEqual([
    "This field is required.",
    "Enter an email address, such as ada@example.org.",
    "Lowercase letters only.",
    "This field is required.",
  ]);
  expect(document.activeElement).toBe(screen.getByLabelText("Name"));
  expect(screen.getByLabelText("Name").getAttribute("aria-invalid")).toBe("true");
  expect(onSubmit).not.toHaveBeenCalled();
});

it("removes the message with a new value, and prevents the browser's own", async () => {
  const onSubmit = vi.fn();
  render(<Field label="Name">{(control) => <TextInput {...control} required onInvalid={onSubmit} />}</Field>);
  const input = screen.getByLabelText("Name");
  expect(fireEvent.invalid(input)).toBe(false);
  expect(descriptionOf("Name")).toBe("This field is required.");
  await userEvent.type(input, "a");
  expect(descriptionOf("Name")).toBeNull();
});

function RefusedForm() {
  const [refusal, setRefusal] = useState<string>();
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        setRefusal("This name is taken.");
      }}
    >
      <Field label="Team">{(control) => <TextInput {...control} />}</Field>
      <Field label="Name" error={refusal}>
        {(control) => <TextInput {...control} />}
      </Field>
      <button type="submit">Create</button>
      <button type="button" onClick={() => { setRefusal("Too short."); }}>
        Check
      </button>
    </form>
  );
}

it("goes to the field that was refused each time the form is submitted", async () => {
  render(<RefusedForm />);
  const submitAndBeRefused = async () => {
    await userEvent.click(screen.getByRole("button", { name: "Create" }));
    await waitFor(() => {
      expect(document.activeElement).toBe(screen.getByLabelText("Name"));
    });
  };
  await submitAndBeRefused();
  await submitAndBeRefused();
});

it("does not go to an error that appears while the user edits, or after another button", async () => {
  render(<RefusedForm />);
  const check = screen.getByRole("button", { name: "Check" });
  await userEvent.type(screen.getByLabelText("Team"), "a");
  await userEvent.click(check);
  expect(descriptionOf("Name")).toBe("Too short.");
  expect(document.activeElement).toBe(check);
  await userEvent.click(screen.getByRole("button", { name: "Create" }));
  await userEvent.click(check);
  expect(descriptionOf("Name")).toBe("Too short.");
  expect(document.activeElement).toBe(check);
});

import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { LengthHistogram } from "@/features/datasets/detail/LengthHistogram";

it.each([
  [[{ upto: 524_288, documents: 1 }], "The document has between 262,145 and 524,288 characters."],
  [[{ upto: 64, documents: 2 }], "All 2 documents have between 33 and 64 characters."],
  [[{ upto: 1, documents: 3 }], "All 3 documents have between 0 and 1 characters."],
  [[{ upto: 64, documents: 0 }, { upto: 128, documents: 3 }, { upto: 256, documents: 0 }], "All 3 documents have between 65 and 128 characters."],
  [[{ upto: 16, documents: 2 }, { upto: 32, documents: 3 }], "At least half of the 5 documents, and the longest, have between 17 and 32 characters."],
  [[{ upto: 64, documents: 2 }, { upto: 128, documents: 1 }], "Half of the 3 documents have up to 64 characters. The longest has between 65 and 128."],
])("says between which edges lengths are, not that an edge is a length (%#)", (lengths, sentence) => {
  render(<LengthHistogram characters={lengths} tokens={[]} />);
  expect(screen.getByText(sentence)).toBeDefined();
});

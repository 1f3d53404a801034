import { expect, it } from "vitest";
import { readProviderCallback } from "@/features/auth/providerCallback";

it.each([
  ["?code=1e9&state=123&iss=https%3A%2F%2Flogin.example.org", { state: "123", authorization_code: "1e9", error: null, issuer: "https://login.example.org" }],
  ["?error=access_denied&state=abc", { state: "abc", authorization_code: null, error: "access_denied", issuer: null }],
  ["?next=%2Flab", null],
  ["?code=abc", null],
  ["?state=abc", null],
  ["", null],
])("reads what a provider added to the address: %s", (search, answer) => {
  expect(readProviderCallback(search)).toEqual(answer);
});

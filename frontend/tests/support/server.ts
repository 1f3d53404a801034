import { setupServer } from "msw/node";

/** A mock of the API; each test adds its own responses. */
export const server = setupServer();

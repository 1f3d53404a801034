import { setupServer } from "msw/node";

/** The API as a test wants it; each test adds its own answers. */
export const server = setupServer();

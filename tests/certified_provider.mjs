// An OpenID Connect provider on loopback: the certified `oidc-provider`, with accounts from the standard input.
//
//   node certified_provider.mjs < accounts.json     prints its issuer; runs until the standard input is closed
//
// An account is signed in by its name and any password. Claims other than `sub` are at the userinfo endpoint, as is its default.
// Its one client may send people back to any port of this machine, because those of platforms under test differ.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.cwd()}/package.json`);
const { Provider } = await import(pathToFileURL(require.resolve("oidc-provider")));
const lines = createInterface({ input: process.stdin });
const accounts = JSON.parse((await lines[Symbol.asyncIterator]().next()).value);
lines.on("close", () => process.exit());

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: "trainwright", client_secret: "a secret & more", redirect_uris: ["http://localhost/sign-in"] }],
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "groups"] },
    cookies: { keys: ["a key for the cookies of the tests"] },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...accounts[id] }) }),
    pkce: { required: () => true },
  });
  provider.Client.prototype.redirectUriAllowed = (uri) => ["localhost", "127.0.0.1"].includes(new URL(uri).hostname);
  server.on("request", provider.callback());
  console.log(issuer);
});

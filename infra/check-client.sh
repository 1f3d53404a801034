#!/bin/sh
# Fail if frontend/openapi.json or the TypeScript types generated from it differ from the API.
set -eu
cd "$(dirname "$0")/.."

document=frontend/openapi.json
types=frontend/src/api/schema.d.ts
committed=$(mktemp -d)
cp "$document" "$types" "$committed/"
restore() {
  cp "$committed/openapi.json" "$document"
  cp "$committed/schema.d.ts" "$types"
  rm -rf "$committed"
}
trap restore EXIT

.venv/bin/python -m trainwright_backend.openapi > "$document"
infra/with-node.sh npm run openapi --silent >/dev/null
if ! diff -u "$committed/openapi.json" "$document" || ! diff -u "$committed/schema.d.ts" "$types"; then
  echo "The generated client is stale: make openapi" >&2
  exit 1
fi

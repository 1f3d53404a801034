#!/bin/sh
# Fail if frontend/openapi.json or the TypeScript types generated from it differ from the API.
set -eu
cd "$(dirname "$0")/.."

generated=$(mktemp -d)
trap 'rm -rf "$generated"' EXIT

.venv/bin/python -m trainwright_backend.openapi > "$generated/openapi.json"
infra/with-node.sh npx openapi-typescript "$generated/openapi.json" --output "$generated/schema.d.ts" >/dev/null 2>&1
for file in openapi.json src/api/schema.d.ts; do
  if ! diff -u "frontend/$file" "$generated/$(basename "$file")" > "$generated/difference"; then
    head -n 100 "$generated/difference"
    echo "frontend/$file is stale: make openapi" >&2
    exit 1
  fi
done

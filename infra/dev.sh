#!/bin/bash
# The platform with reload, and Vite's development server in front of it. Ctrl-C ends both; if one ends, the other is stopped.
set -u
cd "$(dirname "$0")/.."

.venv/bin/trainwright-server up --reload &
server=$!
infra/with-node.sh node_modules/.bin/vite &  # not through npm, which does not forward signals
vite=$!
trap 'kill "$server" "$vite" 2>/dev/null' INT TERM EXIT
wait -n
kill "$server" "$vite" 2>/dev/null
wait

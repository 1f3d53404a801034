#!/bin/sh
# Resolve requirements/*.txt for Python 3.11 and 3.12 on every platform, with hashes and without naming an index.
# Arguments go to the resolver (--upgrade).
set -eu
cd "$(dirname "$0")/.."

compile() {
  .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
    --override requirements/without-torch.txt "$@"
}

also="requirements/torch-needs.in requirements/build-needs.in"
platform="--extra backend --extra agent --extra trainer --extra deepspeed"
# shellcheck disable=SC2086  # the words of $also and $platform are arguments
compile pyproject.toml $also $platform --extra dev --output-file requirements/dev.txt "$@"
# shellcheck disable=SC2086
compile pyproject.toml $also $platform --constraint requirements/dev.txt --output-file requirements/runtime.txt "$@"
compile requirements/node.in --output-file requirements/node.txt "$@"
# The peers of `make bench`; Hugging Face's Trainer at the version that the tests use.
shared=$(mktemp)
trap 'rm -f "$shared"' EXIT
grep -o '^transformers==[^ ]*' requirements/dev.txt > "$shared"
compile requirements/peers.in --constraint "$shared" --output-file requirements/peers.txt "$@"
compile requirements/triton.in --output-file requirements/triton.txt "$@"
compile requirements/release.in --output-file requirements/release.txt "$@"
compile requirements/compose.in --no-deps --output-file requirements/compose.txt "$@"

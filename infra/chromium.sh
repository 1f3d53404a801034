#!/bin/sh
# Make sure that Chromium is on the PATH for the browser tests: install it as root on Debian and Ubuntu, otherwise print how.
set -eu

for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then exit 0; fi
done
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  echo "chromium: installing it with apt-get"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends chromium; } >/dev/null
  exit 0
fi
if command -v apt-get >/dev/null; then
  echo "The browser tests need Chromium: sudo apt-get install chromium" >&2
else
  echo "The browser tests need Chromium: install it with this system's package manager, so that chromium is on the PATH" >&2
fi
exit 1

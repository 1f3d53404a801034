#!/bin/sh
# Install the locked versions into .venv and write a stamp for make.
#
#   infra/venv.sh runtime   the packages that the platform needs
#   infra/venv.sh dev       also the tools
#
# PyTorch is not in the lock files, because the right build depends on the machine. Its own dependencies are locked, so
# only PyTorch and the CUDA libraries that it may install are not verified by our hashes.
set -eu
cd "$(dirname "$0")/.."

lock=$1

fits() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
}

find_python() {
  for candidate in ${PYTHON:-python3 python3.12 python3.11}; do
    if fits "$candidate"; then echo "$candidate"; return; fi
  done
  echo "Trainwright needs Python 3.11 or 3.12${PYTHON:+, which $PYTHON is not}." \
    "Install one, or pass it: make PYTHON=/path/to/python3.12 …" >&2
  return 1
}

install() {
  .venv/bin/python -m pip --disable-pip-version-check --no-input install --quiet "$@"
}

if [ -e .venv/bin/python ] && ! fits .venv/bin/python; then
  echo ".venv holds a Python that is gone or is neither 3.11 nor 3.12: make clean, then try again." >&2
  exit 1
fi
if [ ! -e .venv/bin/python ]; then
  python=$(find_python)
  echo "setup: creating .venv"
  "$python" -m venv .venv || {
    rm -rf .venv
    echo "$python cannot make a virtual environment. Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
  }
fi

echo "setup: installing requirements/$lock.txt"
install --no-deps --require-hashes -r "requirements/$lock.txt"
if [ "$lock" = runtime ]; then
  echo "setup: installing torch $TORCH_VERSION"
  install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==$TORCH_VERSION"
  install --no-deps --no-build-isolation --editable .
fi
touch ".venv/.$lock"

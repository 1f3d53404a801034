#!/bin/sh
# Make sure that `make compose-check` and `make systemd-check` find their programs: install them as root on Debian, otherwise print how.
# podman-compose comes from PyPI, because Debian's does not wait for health checks.
set -eu
cd "$(dirname "$0")/.."

packages="podman buildah runc netavark aardvark-dns iptables iproute2 catatonit debootstrap"

missing=
for package in $packages; do
  dpkg --status "$package" 2>/dev/null | grep -q '^Status: .* installed$' || missing="$missing $package"
done
if [ "$(id -u)" != 0 ]; then
  echo "make compose-check and make systemd-check create networks and change the root of builds: run them as root${missing:+, after: apt-get install$missing}" >&2
  exit 1
fi
if [ -n "$missing" ]; then
  if ! command -v apt-get >/dev/null; then
    echo "make compose-check and make systemd-check need a Debian with these packages:$missing" >&2
    exit 1
  fi
  echo "deployment-tools: installing$missing with apt-get"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086  # the packages are separated by spaces
  { apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends $missing; } >/dev/null
fi
.venv/bin/python -m pip --disable-pip-version-check --no-input install --quiet --no-deps --require-hashes -r requirements/compose.txt

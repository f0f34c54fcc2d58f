#!/usr/bin/env bash
# Puts into FOLDER what ranvier needs of Debian's packages for 64-bit ARM, to compile for it here (cmake/arm64.cmake) and
# to run what comes out under qemu. It asks apt with a state of its own, so this machine's packages stay as they are.
# Usage: scripts/arm64_sysroot.sh FOLDER
set -euo pipefail
folder=$(realpath -m "$1")
list=$(dirname "$0")/apt-packages.txt

say() { printf 'arm64: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Libraries that the core and the command line need; the transports in modules and the baselines are left out.
mapfile -t packages < <(grep -E '^(lib|nlohmann|zlib).*-dev$' "$list" | grep -vE 'mpi|ucx|grpc|benchmark')
[[ -f $folder/.packages && $(<"$folder/.packages") == "${packages[*]}" ]] && exit 0

state=$folder.apt
rm -rf "$folder" "$state"
mkdir -p "$folder" "$state"/{lists,cache/archives}/partial
touch "$state/status"
ask() {
  local command=$1
  shift
  "$command" -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" -o Dir::State::lists="$state/lists" \
    -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" -o APT::Sandbox::User="$(id -un)" "$@"
}
say "fetching ${packages[*]}"
ask apt-get update || die "apt-get update failed; is the network up, and is this Debian 12?"
ask apt-get install --download-only -y --no-install-recommends "${packages[@]}" >/dev/null ||
  die "apt-get could not fetch them"
for package in "$state"/cache/archives/*.deb; do dpkg -x "$package" "$folder"; done
rm -rf "$state"
printf '%s' "${packages[*]}" > "$folder/.packages"

#!/usr/bin/env bash
# Makes a machine ready to build ranvier: Debian packages where this user may install them, and a virtual environment
# with the pinned torch. Does nothing when everything is there. Usage: scripts/setup.sh [VENV [PACKAGE …]], the packages
# being those that only some of the Makefile's targets need.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
more=("${@:2}")

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

missing=()
while read -r package; do
  [[ -z $package || $package == \#* ]] && continue
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done < <(cat scripts/apt-packages.txt; printf '%s\n' "${more[@]}")
# Debian splits ensurepip off into a package; other Pythons carry it.
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)

if ((${#missing[@]})); then
  command -v apt-get >/dev/null || die "no apt-get here; install the equivalents of: ${missing[*]}"
  as_root=()
  if (($(id -u) != 0)); then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      die "these Debian packages are missing, and only root may install them: sudo apt-get install ${missing[*]}"
    fi
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq || die "apt-get update failed; is the network up?"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get could not install: ${missing[*]}"
fi

if ! cmp -s requirements.txt "$venv/.requirements"; then
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv" || die "python3 -m venv $venv failed"
  say "installing requirements.txt into $venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.txt ||
    die "pip could not install requirements.txt; is the network up?"
  cp requirements.txt "$venv/.requirements"
fi

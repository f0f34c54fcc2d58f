#!/bin/sh
# Every collective beside Open MPI, at a small, a middle and a large size.
# usage: every_collective.sh RANVIER RANKS TRANSPORT [MORE FLAGS OF RANVIER BENCH …]
set -eu
if [ $# -lt 3 ]; then
  sed -n 's/^# usage: /usage: /p' "$0" >&2
  exit 2
fi
ranvier=$1
ranks=$2
transport=$3
shift 3

for collective in all_reduce reduce broadcast all_gather reduce_scatter all_to_all gather scatter barrier sendrecv; do
  "$ranvier" bench --ranks "$ranks" --transport "$transport" --collective "$collective" -b 1K -e 4M -f 64 --baseline mpi \
    "$@"
  echo
done

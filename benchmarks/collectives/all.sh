#!/bin/sh
# The recorded tables of docs/benchmarks.md: all_reduce beside Open MPI and gloo, 2 and 4 ranks, shared memory and tcp.
# Stop what else runs on the machine first ('ranvier doctor' says how busy it is).
# usage: all.sh RANVIER PYTHON [FOLDER_FOR_JSON] [MORE FLAGS OF RANVIER BENCH …]
set -eu
if [ $# -lt 2 ]; then
  sed -n 's/^# usage: /usage: /p' "$0" >&2
  exit 2
fi
ranvier=$1
python=$2
folder=${3:-}
shift 2
[ $# -eq 0 ] || shift

for ranks in 2 4; do
  for transport in shm tcp; do
    json=${folder:+--json $folder/all_reduce-$transport-$ranks.json}
    # shellcheck disable=SC2086  # two words or none
    "$ranvier" bench --ranks "$ranks" --transport "$transport" -b 4 -e 64M -f 4 --baseline mpi,gloo --python "$python" \
      $json "$@"
    echo
  done
done

#!/usr/bin/env bash
# Starts a command as N processes that find each other: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
# MASTER_ADDR and MASTER_PORT are set for each. Output lines begin with the rank.
#
#   scripts/launch.sh -n N [--hosts H1,H2,...] [--port PORT] [--] COMMAND...
#
#   -n N          processes in all
#   --hosts LIST  spread them evenly over these hosts through ssh, in order; the first is rank 0's.
#                 The command must be found there, from the same folder. Default: this host
#   --port PORT   where rank 0 listens; default: a free port (one host), 29500 (several)
#
# SIGINT and SIGTERM are passed on. When a rank fails, the others end by themselves (code 4) within
# comm.timeout_s. Exit status: that of the first rank that failed for a reason of its own, else 4 if
# ranks lost each other, else 75 if one stopped early, else 0.
set -uo pipefail

usage() { sed -n '2,15p' "$0" | sed 's/^# \{0,1\}//'; }
fail() { echo "error: launch.sh: $*" >&2; exit 2; }

# A port that nobody listens on now.
free_port() {
  local candidate
  for _ in {1..100}; do
    candidate=$((15000 + RANDOM % 15000))  # below what outgoing connections take
    (exec 3<>"/dev/tcp/127.0.0.1/$candidate") 2>/dev/null || { echo "$candidate"; return; }
  done
}

n="" hosts="" port=""
while [ $# -gt 0 ]; do
  case "$1" in
    -n) n=${2:?}; shift 2 ;;
    --hosts) hosts=${2:?}; shift 2 ;;
    --port) port=${2:?}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    -*) fail "unknown option $1; see --help" ;;
    *) break ;;
  esac
done
[[ "$n" =~ ^[1-9][0-9]*$ ]] || fail "-n \"$n\": expected a number of processes; see --help"
[ $# -gt 0 ] || fail "which command? see --help"

IFS=, read -r -a host_list <<<"$hosts"
if [ ${#host_list[@]} -eq 0 ]; then
  master=127.0.0.1
  [ -n "$port" ] || port=$(free_port)
else
  [ "$n" -ge ${#host_list[@]} ] || fail "-n $n is less than the ${#host_list[@]} hosts"
  master=${host_list[0]}
  port=${port:-29500}
fi
[[ "$port" =~ ^[0-9]+$ ]] || fail "--port \"$port\": expected a number"

per_host=$n
[ ${#host_list[@]} -eq 0 ] || per_host=$(((n + ${#host_list[@]} - 1) / ${#host_list[@]}))
pids=()
start() {  # start RANK LOCAL_RANK HOST COMMAND...
  local rank=$1 local_rank=$2 host=$3
  shift 3
  local variables=(RANK="$rank" WORLD_SIZE="$n" LOCAL_RANK="$local_rank" LOCAL_WORLD_SIZE="$per_host" MASTER_ADDR="$master" MASTER_PORT="$port")
  (
    # The pipe's reader outlives signals, so that last words are heard.
    exec > >(trap '' INT TERM; sed -u "s/^/[$rank] /") 2> >(trap '' INT TERM; sed -u "s/^/[$rank] /" >&2)
    if [ -z "$host" ]; then
      exec env "${variables[@]}" "$@"
    fi
    # -tt: a signal to ssh ends the remote command too.
    exec ssh -tt -o BatchMode=yes "$host" "cd $(printf %q "$PWD") && exec env $(printf '%q ' "${variables[@]}" "$@")" </dev/null
  ) &
  pids+=($!)
}
for ((rank = 0; rank < n; rank++)); do
  if [ ${#host_list[@]} -eq 0 ]; then
    start "$rank" "$rank" "" "$@"
  else
    start "$rank" $((rank % per_host)) "${host_list[rank / per_host]}" "$@"
  fi
done

pass_on() { kill -s "$1" "${pids[@]}" 2>/dev/null; }
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM

lost=0 stopped=0 own=0
for pid in "${pids[@]}"; do
  code=0
  while :; do
    wait "$pid"
    code=$?
    kill -0 "$pid" 2>/dev/null || break  # else a signal ended the wait, not the rank
  done
  case $code in
    0) ;;
    4) lost=1 ;;
    75) stopped=1 ;;
    *) [ $own -ne 0 ] || own=$code ;;
  esac
done
sleep 0.1  # the last lines are on their way
if [ $own -ne 0 ]; then exit $own; fi
if [ $lost -ne 0 ]; then exit 4; fi
if [ $stopped -ne 0 ]; then exit 75; fi
exit 0

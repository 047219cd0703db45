#!/usr/bin/env bash
# Runs `train` on two "hosts": two network namespaces joined by a virtual cable, two ranks on each, the
# store on the first. Then cuts the cable in the middle of a run.
#
#   two_hosts.sh TRAIN FIXTURE_DIR          exit status 77: not permitted here
set -uo pipefail
train=$1 fixture=$2
a=engine-a-$$ b=engine-b-$$
work=$(mktemp -d)
cleanup() { ip netns del "$a"; ip netns del "$b"; rm -rf "$work"; } 2>/dev/null
trap cleanup EXIT
command -v ip >/dev/null && ip netns add "$a" 2>/dev/null && ip netns add "$b" 2>/dev/null &&
  ip link add va-$$ netns "$a" type veth peer name vb-$$ netns "$b" 2>/dev/null &&
  ip netns exec "$a" true 2>/dev/null || {
  echo "SKIPPED: network namespaces are not permitted here"
  exit 77
}
ip -n "$a" addr add 10.99.0.1/24 dev va-$$
ip -n "$b" addr add 10.99.0.2/24 dev vb-$$
for link in "$a lo" "$a va-$$" "$b lo" "$b vb-$$"; do
  read -r space device <<<"$link"
  ip -n "$space" link set "$device" up
done

write_config() {  # write_config STEPS
  cat >"$work/config.toml" <<TOML
[model]
family = "gpt2"
vocab_size = 512
context_length = 24
layers = 2
hidden_size = 48
heads = 3
[parallel]
data = 4
zero_stage = 3
[batch]
global = 12
micro = 1
[optimizer]
lr = 1e-3
[data]
train = ["$fixture/tokens.bin"]
format = "raw_u16"
[train]
steps = $1
threads = 1
[comm]
timeout_s = 4
startup_timeout_s = 20
[metrics]
jsonl = "$work/metrics.jsonl"
TOML
}

start() {  # start COMMAND...: the ranks; fills pids
  pids=()
  for rank in 0 1 2 3; do
    space=$a
    [ "$rank" -lt 2 ] || space=$b
    RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) MASTER_ADDR=10.99.0.1 MASTER_PORT=29777 \
      ip netns exec "$space" "$train" "$work/config.toml" >"$work/out.$rank" 2>&1 &
    pids+=($!)
  done
}

write_config 10
start
for pid in "${pids[@]}"; do
  wait "$pid" || { echo "FAIL: a rank on two hosts:"; cat "$work"/out.*; exit 1; }
done
two_hosts=$(grep -o '"loss":[^,]*' "$work/metrics.jsonl")
rm "$work/metrics.jsonl"
"$train" "$work/config.toml" --quiet || exit 1
[ "$two_hosts" = "$(grep -o '"loss":[^,]*' "$work/metrics.jsonl")" ] ||
  { echo "FAIL: losses differ between two hosts and threads of one"; exit 1; }
echo "ok: four ranks on two hosts give the losses of four threads"
rm "$work/metrics.jsonl"

write_config 1000000
start
for _ in $(seq 100); do [ -s "$work/metrics.jsonl" ] && break; sleep 0.1; done
ip -n "$a" link set va-$$ down
began=$(date +%s)
for rank in 0 1 2 3; do
  wait "${pids[$rank]}"
  code=$?
  [ $code -eq 4 ] || { echo "FAIL: rank $rank ended with $code:"; cat "$work/out.$rank"; exit 1; }
done
took=$(($(date +%s) - began))
[ $took -le 12 ] || { echo "FAIL: it took $took s to notice a cut cable"; exit 1; }
grep -h '^error:' "$work"/out.*
echo "ok: a cut cable ends all ranks with code 4 after $took s"

#!/usr/bin/env python3
"""Tokens per second of one rank with all threads against rank threads with ZeRO-3 at the same global batch.

usage: ranks.py --train BIN [--repeats 3] [--steps 4] [--set KEY=VALUE]...

Alternates the two, takes the median step of each run (the first is left out) and the median over runs, and prints one JSON
object. Default: GPT-2 124M, 4 sequences of 256 tokens, 2 threads.
"""
import argparse, json, os, random, statistics, struct, subprocess, tempfile

CONFIG = """
[model]
family = "gpt2"
vocab_size = 50304
context_length = 256
[parallel]
data = {ranks}
zero_stage = 3
prefetch_units = 2
[batch]
global = 4
[optimizer]
lr = 1e-4
[data]
train = ["{data}"]
format = "raw_u16"
[train]
steps = {steps}
threads = 2
[metrics]
jsonl = "{metrics}"
"""

def run(a, folder, ranks):
    metrics = f"{folder}/metrics.jsonl"
    if os.path.exists(metrics):
        os.remove(metrics)
    config = f"{folder}/config.toml"
    with open(config, "w") as f:
        f.write(CONFIG.format(ranks=ranks, data=f"{folder}/tokens.bin", steps=a.steps, metrics=metrics))
    command = [a.train, config, "--quiet"]
    for s in a.set:
        command += ["--set", s]
    subprocess.run(command, check=True)
    with open(metrics) as f:
        records = [json.loads(line) for line in f if '"loss"' in line]
    return records

if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--train", required=True); p.add_argument("--repeats", type=int, default=3); p.add_argument("--steps", type=int, default=4)
    p.add_argument("--set", action="append", default=[])
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rng = random.Random(1)
        with open(f"{folder}/tokens.bin", "wb") as f:
            f.write(struct.pack("<60000H", *(rng.randrange(50000) for _ in range(60000))))
        speeds, losses, exposed = {1: [], 2: []}, {}, []
        for _ in range(a.repeats):
            for ranks in (1, 2):
                records = run(a, folder, ranks)
                speeds[ranks].append(statistics.median(r["tokens_per_s"] for r in records[1:]))
                losses[ranks] = [r["loss"] for r in records]
                if ranks == 2:
                    exposed.append(statistics.median(r["comm_exposed_ms"] for r in records[1:]))
    one, two = statistics.median(speeds[1]), statistics.median(speeds[2])
    print(json.dumps({"one_rank_tokens_per_s": one, "two_ranks_tokens_per_s": two, "ratio": round(two / one, 3),
                      "runs": {str(k): [round(x, 1) for x in v] for k, v in speeds.items()}, "exposed_ms": round(statistics.median(exposed), 1),
                      "largest_loss_difference": max(abs(x - y) / y for x, y in zip(losses[1], losses[2]))}, indent=2))

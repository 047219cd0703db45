#!/usr/bin/env python3
"""Kills or stops one of several `train` processes at random moments and checks what the others do (standard library only).

usage: kill_ranks.py --train BIN FIXTURE_DIR [--times 4] [--ranks 4] [--timeout-s 4] [--seed 1]

Each trial starts the ranks as processes, waits until they train, then sends SIGKILL or SIGSTOP to one of them. All
others must end within comm.timeout_s and a little, with exit code 4, and name the victim in their one error line.
A last trial makes rank 0 throw (its metrics file is full): it must say so with code 3, and the others quote it.
"""
import argparse, os, random, re, signal, socket, subprocess, sys, tempfile, time

CONFIG = """
[model]
family = "gpt2"
vocab_size = 512
context_length = 32
layers = 4
hidden_size = 64
heads = 4
[parallel]
data = {ranks}
zero_stage = {stage}
[batch]
global = {ranks}
micro = 1
[optimizer]
lr = 1e-4
[data]
train = ["{fixture}/tokens.bin"]
format = "raw_u16"
[train]
steps = 1000000
threads = 1
[comm]
timeout_s = {timeout}
startup_timeout_s = 30
[metrics]
jsonl = "{metrics}"
"""

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]

def start(a, config):
    port = free_port()
    processes = []
    for rank in range(a.ranks):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(a.ranks), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        processes.append(subprocess.Popen([a.train, config], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    return processes

def write_config(a, out, stage, metrics):
    config = out + "/config.toml"
    with open(config, "w") as f:
        f.write(CONFIG.format(ranks=a.ranks, stage=stage, fixture=os.path.abspath(a.fixture), timeout=a.timeout_s, metrics=metrics))
    return config

def throwing_trial(a):
    with tempfile.TemporaryDirectory() as out:
        processes = start(a, write_config(a, out, 3, "/dev/full"))
        begin = time.time()
        problems = []
        for rank, p in enumerate(processes):
            try:
                p.wait(timeout=max(0.1, begin + 40 - time.time()))
            except subprocess.TimeoutExpired:
                p.kill()
            error = [l for l in p.stderr.read().splitlines() if l.startswith("error:")]
            p.stderr.close()
            if p.returncode != (3 if rank == 0 else 4) or len(error) != 1 or not re.search(r"cannot write /dev/full" if rank == 0 else r"\brank 0\b", error[0]):
                problems.append(f"rank {rank} ended with {p.returncode}: {error}")
        print(("FAIL " if problems else "ok   ") + "rank 0 throws: " + ("; ".join(problems) or f"all gone after {time.time() - begin:.1f} s"), flush=True)
        return problems

def trial(a, rng, number):
    victim = rng.randrange(a.ranks)
    how = rng.choice([signal.SIGKILL, signal.SIGSTOP])
    stage = rng.choice([0, 1, 2, 3])
    with tempfile.TemporaryDirectory() as out:
        processes = start(a, write_config(a, out, stage, out + "/metrics.jsonl"))
        problems = []
        try:
            deadline = time.time() + 60
            while time.time() < deadline and not (os.path.exists(out + "/metrics.jsonl") and os.path.getsize(out + "/metrics.jsonl") > 0):
                if any(p.poll() is not None for p in processes):
                    break
                time.sleep(0.02)
            time.sleep(rng.uniform(0, 1.5))
            if any(p.poll() is not None for p in processes):
                return f"a rank ended before the signal: {[p.poll() for p in processes]}, {processes[0].stderr.read()}"
            begin = time.time()
            os.kill(processes[victim].pid, how)
            slowest = 0.0
            for rank, p in enumerate(processes):
                if rank == victim:
                    continue
                try:
                    p.wait(timeout=max(0.1, begin + a.timeout_s + 5 - time.time()))
                except subprocess.TimeoutExpired:
                    problems.append(f"rank {rank} still runs {a.timeout_s + 5} s after")
                    continue
                slowest = max(slowest, time.time() - begin)
                error = [l for l in p.stderr.read().splitlines() if l.startswith("error:")]
                if p.returncode != 4:
                    problems.append(f"rank {rank} ended with {p.returncode}: {error}")
                elif len(error) != 1 or not re.search(rf"\brank {victim}\b", error[0]):
                    problems.append(f"rank {rank} does not name rank {victim}: {error}")
        finally:
            for p in processes:
                if p.poll() is None:
                    p.kill()
                p.wait()
                p.stderr.close()
        what = f"{how.name} of rank {victim}, ZeRO stage {stage}"
        print(("FAIL " if problems else "ok   ") + f"{number}: {what}: " + ("; ".join(problems) or f"others gone after {slowest:.1f} s"), flush=True)
        return problems

if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("fixture"); p.add_argument("--train", required=True); p.add_argument("--times", type=int, default=4)
    p.add_argument("--ranks", type=int, default=4); p.add_argument("--timeout-s", type=int, default=4); p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng = random.Random(a.seed)
    failures = 0
    for number in range(a.times):
        problems = trial(a, rng, number)
        if problems:
            failures += 1
            if isinstance(problems, str):
                print("FAIL " + problems)
    failures += bool(throwing_trial(a))
    print(f"{a.times + 1 - failures} held, {failures} fell short")
    sys.exit(failures > 0)

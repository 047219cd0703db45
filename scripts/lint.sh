#!/usr/bin/env bash
# clang-tidy over the library and the commands, with the checks of .clang-tidy. Needs a configured
# build (build/release, or the first argument) for its compile_commands.json.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
lint=$build/lint
mkdir -p "$lint"

# One command a file (kernels are compiled once per instruction set), of our own sources.
python3 - "$build/compile_commands.json" "$lint" <<'PY'
import json, pathlib, sys

commands, lint = sys.argv[1], pathlib.Path(sys.argv[2])
root = pathlib.Path.cwd()
folders = {"src", "ops", "optim", "checkpoint", "apps"}
files = {}
for entry in json.loads(pathlib.Path(commands).read_text()):
    path = pathlib.Path(entry["file"])
    if path.is_relative_to(root) and path.relative_to(root).parts[0] in folders:
        files.setdefault(str(path), entry)
(lint / "compile_commands.json").write_text(json.dumps(list(files.values())))
(lint / "files.txt").write_text("\n".join(sorted(files)) + "\n")
PY

# clang before 15 cannot use libstdc++'s std::source_location (tests/fuzz/source_location.hpp).
echo "clang-tidy on $(wc -l < "$lint/files.txt") files"
xargs -a "$lint/files.txt" -P "$(nproc)" -n 4 clang-tidy -p "$lint" --quiet \
  --extra-arg=-include --extra-arg="$PWD/tests/fuzz/source_location.hpp" \
  --extra-arg=-Wno-unknown-warning-option 2> >(grep -v -E '^[0-9]+ warnings? generated' >&2)

#!/usr/bin/env bash
# From a bare Debian 12 to text from a model that you trained, in under five minutes on two cores:
# installs packages, builds train, prepare and generate, trains configs/quickstart.toml on the King
# James Bible and samples from the result. Leaves everything under runs/quickstart.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

# shellcheck disable=SC2086
install_packages $RUN_PACKAGES $CORPUS_PACKAGES
cmake --preset release -DENGINE_TESTS=OFF >/dev/null
cmake --build build/release --target app_train app_prepare app_generate
bin=build/release/bin
run=runs/quickstart
rm -rf "$run"
mkdir -p "$run"

# One verse a line, without its reference. The program takes one range for the whole book.
bible -f "Genesis 1:1-Revelation 22:21" | sed 's/^[^ ]* //' > "$run/bible.txt"
"$bin/prepare" --tokenizer bytes --out "$run/data" "$run/bible.txt"
"$bin/train" configs/quickstart.toml
echo
"$bin/generate" --checkpoint "$(ls -d "$run"/checkpoints/step-* | tail -n 1)" \
  --prompt "And the LORD said unto " --max-tokens 300 --temperature 0.6 --seed 1

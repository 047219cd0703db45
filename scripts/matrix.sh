#!/usr/bin/env bash
# The full product of data-parallel layouts against the reference fixtures, with AdamW and SGD:
# degree x ZeRO stage x micro-batch x replicas x choices of gather and reduce, and the Gloo backend.
# Takes some minutes; the tests run a covering array of it.
#
#   scripts/matrix.sh [BUILD_FOLDER] [FIXTURE...]     default: build/release, all of tests/golden
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
shift || true
if [ $# -eq 0 ]; then
  set -- $(dirname tests/golden/*/case.json)
fi
exec python3 tests/check_reference.py --train "$build/bin/train" --matrix data "$@"

#!/usr/bin/env bash
# Everything that has to hold before a change is merged, from a bare Debian 12: packages, format,
# floors, release build and tests, lint, the tests again under sanitizers, fuzzing. Stops at the
# first step that fails; the last lines are the summary.
#
#   scripts/test.sh              all steps
#   scripts/test.sh --quick      release build and tests only
#   scripts/test.sh STEP...      these steps: packages format floors build test lint asan tsan fuzz
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

all_steps="packages format floors build test lint asan tsan fuzz"
case "${1:-}" in
  "") steps=$all_steps ;;
  --quick) steps="build test" ;;
  -*) sed -n '2,8s/^# \{0,1\}//p' "$0"; [ "$1" = --help ]; exit ;;
  *) steps="$*" ;;
esac
for step in $steps; do
  [[ " $all_steps " = *" $step "* ]] || { echo "unknown step $step: known are $all_steps" >&2; exit 2; }
done

results=build/test-results  # GoogleTest's reports, one a program; logs
rm -rf "$results"
mkdir -p "$results"
# What CTest starts two at a time shares two cores.
export OMP_NUM_THREADS=1 CTEST_PARALLEL_LEVEL=2

# Runs the tests of a preset: run_tests PRESET [ctest argument...]
run_tests() {
  local preset=$1
  shift
  mkdir -p "$results/$preset"
  GTEST_OUTPUT="xml:$PWD/$results/$preset/" \
    ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --timeout 600 \
    --output-junit "$PWD/$results/$preset.junit.xml" "$@" 2>&1 | tee "$results/$preset.log"
}

skipped() {
  echo "!!!!!!!! SKIPPED: $*" | tee -a "$results/skipped.txt"
}

step_packages() {
  # shellcheck disable=SC2086
  install_packages $RUN_PACKAGES $CORPUS_PACKAGES $TEST_PACKAGES $BENCH_PACKAGES
}

step_format() {
  command -v clang-format >/dev/null || { skipped "format: no clang-format"; return 0; }
  git ls-files -z '*.hpp' '*.cpp' | xargs -0 clang-format --dry-run -Werror
}

step_floors() {
  python3 scripts/check_floors.py --self-test && python3 scripts/check_floors.py &&
    python3 scripts/check_floors.py --libraries
}

step_build() {
  cmake --preset release -DENGINE_WERROR=ON -DENGINE_TESTS=ON -DENGINE_BENCH=ON &&
    cmake --build build/release
}

step_test() {
  run_tests release || return 1
  ! grep -q 'two_hosts.*Skipped' "$results/release.log" ||
    skipped "two_hosts: network namespaces are not permitted here"
}

step_lint() {
  command -v clang-tidy >/dev/null || { skipped "lint: no clang-tidy"; return 0; }
  scripts/lint.sh build/release
}

step_asan() {
  cmake --preset asan && cmake --build build/asan || return 1
  # Leaks inside libraries that we only link are theirs.
  ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1 \
    UBSAN_OPTIONS=print_stacktrace=1 \
    LSAN_OPTIONS=suppressions=$PWD/tests/sanitize/lsan.txt:print_suppressions=0 run_tests asan -LE slow
}

step_tsan() {
  cmake --preset tsan && cmake --build build/tsan --target test_core test_ops test_comm test_program test_train || return 1
  # Long runs of what shorter ones run too are left out, and Gloo, whose library is not instrumented:
  # its locks and threads are seen in part.
  local long='Layouts.Covering*:Layouts.RunsOf*:Layouts.Bf16*:Memory.*:Overlap.*:*Reference.*'
  long+=':Scenario.Accumulation*:Scenario.GradientNorm*:Session.AfterTheSecondStep*:*Gloo*'
  TSAN_OPTIONS=suppressions=$PWD/tests/sanitize/tsan.txt:halt_on_error=1:second_deadlock_stack=1 \
    GTEST_FILTER="-$long" run_tests tsan -R '^(core|ops|comm|program|train)$'
}

step_fuzz() {
  command -v clang++ >/dev/null || { skipped "fuzz: no clang++"; return 0; }
  cmake --preset fuzz && cmake --build build/fuzz --target fuzzers && run_tests fuzz -L fuzz
}

# Tests of a preset as "passed failed": GoogleTest's cases, and what CTest ran besides.
count_tests() {
  python3 - "$results" "$1" <<'PY'
import pathlib, sys
import xml.etree.ElementTree as xml

results, preset = pathlib.Path(sys.argv[1]), sys.argv[2]
passed = failed = 0
programs = set()
for report in (results / preset).glob("test_*.xml"):
    root = xml.parse(report).getroot()
    bad = int(root.get("failures", 0)) + int(root.get("errors", 0))
    off = int(root.get("disabled", 0)) + sum(int(s.get("skipped", 0)) for s in root)
    passed += int(root.get("tests", 0)) - bad - off
    failed += bad
    programs.add((report.stem.removeprefix("test_"), bad > 0))
for case in xml.parse(results / f"{preset}.junit.xml").getroot().iter("testcase"):
    bad = case.get("status") == "fail"
    if (case.get("name"), bad) in programs:
        continue  # its cases are counted
    passed += case.get("status") == "run"
    failed += bad
print(passed, failed)
PY
}

ok=0 bad=0 table=""
total_start=$SECONDS
for step in $steps; do
  echo "==== $step"
  start=$SECONDS
  if step_"$step" </dev/null; then
    outcome=ok ok=$((ok + 1))
  else
    outcome=FAILED bad=$((bad + 1))
  fi
  table+=$(printf '  %-9s %-7s %4d s' "$step" "$outcome" $((SECONDS - start)))$'\n'
  [ "$outcome" = ok ] || break
done

# The count: tests of every run, and each step that is not a run of tests.
passed=0 failed=0
for step in $steps; do
  case "$step" in
    test) preset=release ;;
    asan | tsan | fuzz) preset=$step ;;
    *) continue ;;
  esac
  [ -f "$results/$preset.junit.xml" ] || continue
  read -r p f < <(count_tests "$preset")
  passed=$((passed + p)) failed=$((failed + f))
  # The step itself counts only if it broke without a failed test (a build, say).
  if grep -q "^  $step " <<<"$table"; then
    if grep -q "^  $step  *ok" <<<"$table"; then ok=$((ok - 1)); elif [ "$f" -gt 0 ]; then bad=$((bad - 1)); fi
  fi
done
passed=$((passed + ok)) failed=$((failed + bad))

echo
echo "==== summary"
printf '%s' "$table"
printf '  %-9s %-7s %4d s\n' total "" $((SECONDS - total_start))
[ ! -f "$results/skipped.txt" ] || cat "$results/skipped.txt"
[ ! -f "$results/release.log" ] || sed -n '/tests passed/,$p' "$results/release.log"
cases_skipped=$(cat "$results"/*/test_*.xml 2>/dev/null | grep -c 'result="skipped"')
[ "$cases_skipped" -eq 0 ] ||
  echo "!!!!!!!! SKIPPED: $cases_skipped test cases, for want of files named in the logs under $results"
echo "$passed passed, $failed failed, $cases_skipped skipped"
[ "$failed" -eq 0 ]

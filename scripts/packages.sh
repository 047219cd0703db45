#!/usr/bin/env bash
# Debian packages that builds and tests need, and `install_packages LIST...`, which installs those
# that are missing. Sourced by quickstart.sh and test.sh.

RUN_PACKAGES="g++ cmake ninja-build pkg-config libdnnl-dev libgloo-dev libfmt-dev libspdlog-dev
  libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libpcre2-dev libsentencepiece-dev libxxhash-dev"
CORPUS_PACKAGES="bible-kjv"
TEST_PACKAGES="ccache libgtest-dev clang clang-format clang-tidy libclang-rt-14-dev python3 git iproute2"
BENCH_PACKAGES="libbenchmark-dev"

install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local sudo=""
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      echo "error: missing packages: ${missing[*]}: install them as root with apt-get" >&2
      return 2
    }
    sudo="sudo"
  fi
  echo "installing ${missing[*]}" >&2
  $sudo apt-get update -qq || return 1
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
}

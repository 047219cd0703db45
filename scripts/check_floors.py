#!/usr/bin/env python3
"""Checks that no file includes upward through the floors (lowest first in FLOORS).

  check_floors.py              every #include "..." of the library and the commands
  check_floors.py --libraries  public headers include no third-party header but fmt's
  check_floors.py --self-test  plants a violation of each kind and expects to find it

Prints one line per violation and exits with 1 if there is any.
"""

import argparse
import pathlib
import re
import sys
import tempfile

FLOORS = [
    ("core",),
    ("ops",),
    ("optim",),
    ("comm",),
    ("autograd",),
    ("parallel",),
    ("nn",),
    ("program",),
    ("data", "checkpoint"),  # state
    ("train",),
    ("apps",),
]
RANK = {name: rank for rank, names in enumerate(FLOORS) for name in names}
# Folders whose name is a floor, and folders that hold one folder per floor.
FLOOR_FOLDERS = ("ops", "optim", "checkpoint", "apps")
PARENTS = ("include/engine", "src")
SUFFIXES = {".hpp", ".cpp", ".h", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LIBRARY = re.compile(
    r"^(cuda|cublas|cudnn|cutlass|nccl|nvrtc|nvtx|thrust/|cub/|dnnl|oneapi/|gloo/|spdlog/|CLI/"
    r"|nlohmann/|toml\+\+/|toml\.hpp|pcre2|sentencepiece|xxhash|omp\.h|mpi\.h|gtest/|benchmark/)",
    re.IGNORECASE,
)


def floor_of(path):
    """Floor of a path relative to the root, or None outside the floors."""
    for parent in PARENTS:
        if path.startswith(parent + "/"):
            rest = path[len(parent) + 1 :].split("/")
            return rest[0] if len(rest) > 1 else None
    first = path.split("/")[0]
    return first if first in FLOOR_FOLDERS else None


def files(root, folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def included_floor(root, path, name):
    """Floor that an #include reaches; headers beside the file go by its own folder."""
    beside = path.parent / name
    if beside.is_file():
        return floor_of(beside.resolve().relative_to(root).as_posix())
    if name.startswith("engine/"):
        return floor_of("include/" + name)
    return floor_of(name)


def upward_includes(root):
    found = []
    for path in files(root, FLOOR_FOLDERS + PARENTS):
        where = path.relative_to(root).as_posix()
        floor = floor_of(where)
        if floor is None:
            continue  # an umbrella header beside the floors
        if floor not in RANK:
            found.append(f"{where}:1: folder {floor} is no floor: add it to FLOORS")
            continue
        for number, _, name in includes(path):
            other = included_floor(root, path, name)
            if other is not None and RANK.get(other, len(FLOORS)) > RANK[floor]:
                found.append(f"{where}:{number}: floor {floor} includes {name} of floor {other}")
    return found


def library_includes(root):
    return [
        f"{path.relative_to(root).as_posix()}:{number}: a public header includes {name}"
        for path in files(root, ("include",))
        for number, _, name in includes(path)
        if LIBRARY.match(name)
    ]


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        plant = {
            "include/engine/core/a.hpp": '#include "engine/core/b.hpp"\n#include <vector>\n',
            "include/engine/core/b.hpp": "#pragma once\n",
            "include/engine/nn/c.hpp": "\n# include <engine/train/d.hpp>\n",
            "include/engine/train/d.hpp": "#include <spdlog/spdlog.h>\n",
            "src/data/e.cpp": '#include "engine/checkpoint/f.hpp"\n',
            "include/engine/checkpoint/f.hpp": '#include "engine/data/g.hpp"\n',
            "ops/h.cpp": '#include "i.hpp"\n#include "src/nn/j.hpp"\n',
            "ops/i.hpp": '#include "engine/core/a.hpp"\n',
        }
        for name, text in plant.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        expected = [
            "ops/h.cpp:2: floor ops includes src/nn/j.hpp of floor nn",
            "include/engine/nn/c.hpp:2: floor nn includes engine/train/d.hpp of floor train",
            "include/engine/train/d.hpp:1: a public header includes spdlog/spdlog.h",
        ]
        found = upward_includes(root) + library_includes(root)
        if found != expected:
            print("self-test failed: found", *found, "expected", *expected, sep="\n  ")
            return 1
    print("self-test: found what was planted, and nothing else")
    return 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--libraries", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    root = pathlib.Path(__file__).resolve().parent.parent
    found = library_includes(root) if arguments.libraries else upward_includes(root)
    for line in found:
        print(line)
    print(f"{len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

#pragma once
#include <string>

namespace engine {

/// Version of the engine, for example "0.1.0".
std::string version_string();

/// Version, compiler, libraries and devices, one line each: what `--version` prints.
std::string version_report();

}  // namespace engine

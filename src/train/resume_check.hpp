#pragma once
#include <string>

#include "engine/train/config.hpp"

namespace engine::train::detail {

/// Compares the config of a checkpoint (`before`, found at `path`) with that of the run that goes
/// on from it. Throws Errc::invalid_argument for a change after which it would not be the same run,
/// naming the key; returns all others that matter as text, or nothing.
std::string check_resumed_config(const std::string& path, const Config& before,
                                 const Config& after);

}  // namespace engine::train::detail

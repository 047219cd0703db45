#pragma once
#include <string>
#include <string_view>

namespace engine::detail {

/// A name from a file, in quotes and fit for a message of one line: no control characters, not
/// long.
std::string printable(std::string_view name);

}  // namespace engine::detail

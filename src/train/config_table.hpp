#pragma once
// The one table of config keys: parsing, printing and documentation all read it.
#include <limits>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/train/config.hpp"

namespace engine::train::detail {

/// Access to the member that a key stands for; the alternative is the key's type.
using Field =
    std::variant<std::int64_t& (*)(Config&), double& (*)(Config&), bool& (*)(Config&),
                 std::string& (*)(Config&), std::vector<std::int64_t>& (*)(Config&),
                 std::vector<double>& (*)(Config&), std::vector<std::string>& (*)(Config&)>;

struct Row {
  std::string_view key;
  Field field;
  std::string_view doc;
  std::string_view default_text = {};          ///< where the default is derived or required
  std::vector<std::string_view> choices = {};  ///< of a text key
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

std::span<const Row> config_table();

/// Row of a key, or null.
const Row* find_row(std::string_view key);

/// The known key that `key` is closest to.
std::string_view nearest_key(std::string_view key);

}  // namespace engine::train::detail

#include "src/core/text.hpp"

namespace engine::detail {

std::string printable(std::string_view name) {
  constexpr std::size_t kMost = 200;
  std::string text = "\"";
  for (const char c : name.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return text + (name.size() > kMost ? "...\"" : "\"");
}

}  // namespace engine::detail

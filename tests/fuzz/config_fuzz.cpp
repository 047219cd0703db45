// Any text is either refused as user input, or gives a config that survives being written as TOML
// and read again.
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/core/error.hpp"
#include "engine/train/config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace engine;
  train::Config config;
  try {
    config = train::parse_config(std::string_view(reinterpret_cast<const char*>(data), size), "x");
  } catch (const Error& error) {
    if (error.code() != Errc::invalid_argument) std::abort();
    return 0;
  }
  const std::string text = train::to_toml(config);
  if (train::to_toml(train::parse_config(text, "again")) != text) std::abort();
  return 0;
}

// Any text is either refused as user input or corrupt data, or gives a valid model shape that
// survives being written and read again.
#include <cstdlib>
#include <string_view>

#include "engine/checkpoint/hugging_face.hpp"
#include "engine/core/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace engine;
  nn::ModelConfig config;
  try {
    config = checkpoint::parse_hugging_face_config(
        std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt_data && error.code() != Errc::invalid_argument) std::abort();
    return 0;
  }
  config.validate();
  const std::string text = checkpoint::hugging_face_config(config, DType::f32);
  if (checkpoint::parse_hugging_face_config(text, "again") != config) std::abort();
  return 0;
}

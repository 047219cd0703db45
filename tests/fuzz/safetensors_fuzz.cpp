// Any bytes are either refused with Errc::corrupt_data, or give tensors that tile the data.
#include <cstdlib>

#include "engine/checkpoint/safetensors.hpp"
#include "engine/core/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace engine;
  try {
    const auto header =
        checkpoint::SafetensorsHeader::parse(std::as_bytes(std::span(data, size)), "fuzz");
    std::size_t at = header.data_begin;
    for (const checkpoint::StoredTensor& tensor : header.tensors) {
      if (header.data_begin + tensor.begin != at || tensor.numel() < 0) std::abort();
      at += tensor.end - tensor.begin;
    }
    if (at != size) std::abort();
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt_data) std::abort();
  }
  return 0;
}

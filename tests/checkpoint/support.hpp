#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/support/files.hpp"
#include "tests/support/temporary_directory.hpp"

namespace engine::checkpoint {

using test::expect_error;
using test::read_file;
using test::TemporaryDirectory;

/// Bytes of a safetensors file with this header text and that many bytes of data.
inline std::string safetensors_bytes(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + std::string(header) + std::string(data_bytes, '\1');
}

}  // namespace engine::checkpoint

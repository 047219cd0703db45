// Token files of any bytes in every format. The first byte of the input picks the format and
// whether an index lies beside; the second is the length of the index in steps of 4 bytes.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "engine/core/error.hpp"
#include "engine/data/token_file.hpp"

namespace {

using engine::data::TokenFile;
using engine::data::TokenFormat;

void write(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

void read_all(const std::filesystem::path& path, TokenFormat format) {
  constexpr std::int64_t kVocabulary = 50257;
  try {
    const TokenFile file = TokenFile::open(path, format, kVocabulary);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.tokens()));
    file.read(0, tokens);
    for (const std::int32_t id : tokens) {
      if (id < 0 || id >= kVocabulary) std::abort();
    }
  } catch (const engine::Error& error) {
    if (error.code() == engine::Errc::internal) std::abort();
  }
}

/// A folder in memory for this process, removed at its end.
struct Folder {
  std::filesystem::path path =
      std::filesystem::path(std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") /
      ("engine_fuzz_" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  if (size < 2) return 0;
  const auto format = static_cast<TokenFormat>(data[0] % 5);
  std::span<const std::uint8_t> rest(data + 2, size - 2);
  const std::size_t beside = std::min<std::size_t>(data[1] * std::size_t{4}, rest.size());
  std::filesystem::remove(folder.path / "a.idx");
  std::filesystem::remove(folder.path / "meta.json");
  if ((data[0] & 0x80U) != 0) {
    write(folder.path / ((data[0] & 0x40U) != 0 ? "meta.json" : "a.idx"), rest.first(beside));
    rest = rest.subspan(beside);
  }
  write(folder.path / "a.bin", rest);
  read_all(folder.path / "a.bin", format);
  return 0;
}

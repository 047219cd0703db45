#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/core/atomic_file.hpp"
#include "engine/core/dtype.hpp"
#include "engine/core/mapped_file.hpp"
#include "engine/core/shape.hpp"

namespace engine::checkpoint {

/// A tensor of a safetensors file.
struct StoredTensor {
  std::string name;
  std::string dtype;  ///< as in the file: F32, BF16, ...
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;  ///< first byte, counted from the start of the data
  std::size_t end = 0;

  std::int64_t numel() const noexcept;
};

using Metadata = std::map<std::string, std::string>;

/// What the header of a safetensors file says.
struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  ///< in the order of their data
  Metadata metadata;
  std::size_t data_begin = 0;  ///< first byte of the data in the file

  /// Parses and checks the header at the start of `file`, the whole file's bytes. `path` is for
  /// messages. Strict: sizes, UTF-8, no duplicate names, data without holes or overlap up to the
  /// end of the file. Throws Errc::corrupt_data naming file, tensor, expected and got.
  /// Source: https://github.com/huggingface/safetensors, README and `SafeTensors::deserialize`.
  static SafetensorsHeader parse(std::span<const std::byte> file,
                                 const std::filesystem::path& path);
};

/// A safetensors file, mapped; nothing is read before it is asked for. Move-only.
class SafetensorsFile {
 public:
  /// Throws Errc::io if the file cannot be opened, Errc::corrupt_data if it is not valid.
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return file_.path(); }
  /// All tensors in the order of their data.
  const std::vector<StoredTensor>& tensors() const noexcept { return header_.tensors; }
  const Metadata& metadata() const noexcept { return header_.metadata; }

  /// The tensor of that name, or null.
  const StoredTensor* find(std::string_view name) const noexcept;
  /// Like `find`. Throws Errc::corrupt_data if there is none.
  const StoredTensor& at(std::string_view name) const;
  /// Bytes of a tensor, possibly unaligned: copy them, do not cast. They end with this object.
  std::span<const std::byte> data(std::string_view name) const;
  /// Reads elements [first, first + out.size()) as floats, from F32, F16, BF16 or F64.
  /// Throws Errc::corrupt_data for other types, Errc::internal for a range outside the tensor.
  void read_f32(std::string_view name, std::span<float> out, std::int64_t first = 0) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
};

/// A tensor to be written.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

/// Writes a safetensors file: all tensors are declared first, then their bytes follow in order.
/// Data starts at a multiple of 64 bytes. The file appears only with `commit`.
class SafetensorsWriter {
 public:
  /// Throws Errc::io; Errc::internal for names used twice or not UTF-8.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorDeclaration> tensors,
                    const Metadata& metadata = {{"format", "pt"}});

  /// Appends bytes of tensor `name`, which must be the first one that is not complete; a tensor may
  /// come in pieces. Throws Errc::io; Errc::internal for bytes out of order or too many.
  void append(std::string_view name, std::span<const std::byte> bytes);
  /// The same from floats, rounded to the declared type (f32, bf16 or f16).
  void append_f32(std::string_view name, std::span<const float> values);
  /// Gives the file its name. Throws Errc::io; Errc::internal while bytes are missing.
  void commit();

 private:
  void skip_complete();

  std::vector<TensorDeclaration> tensors_;
  AtomicFile file_;
  std::size_t current_ = 0;        ///< first tensor that is not complete
  std::size_t written_bytes_ = 0;  ///< of the current tensor
};

}  // namespace engine::checkpoint

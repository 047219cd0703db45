#include "engine/checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/core/error.hpp"
#include "src/core/text.hpp"

namespace engine::checkpoint {

namespace {

using engine::detail::printable;

constexpr std::size_t kDataAlignment = 64;

template <class Stored>
void convert(const std::byte* source, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, source + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<float>(value);
  }
}

std::string_view stored_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
    case DType::u16:
      return "U16";
    case DType::u8:
      return "U8";
  }
  return "?";
}

std::size_t bytes_of(const TensorDeclaration& tensor) {
  return static_cast<std::size_t>(tensor.shape.numel()) * size_of(tensor.dtype);
}

std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception& error) {
    ENGINE_FAIL(Errc::internal, "{} cannot be written to a safetensors file: {}", printable(text),
                error.what());
  }
}

/// Length, JSON and the spaces that align the data.
std::string make_header(std::span<const TensorDeclaration> tensors, const Metadata& metadata) {
  std::string json = "{\"__metadata__\":{";
  for (const auto& [key, value] : metadata) {
    if (!json.ends_with('{')) json += ',';
    json += json_string(key) + ':' + json_string(value);
  }
  json += '}';
  std::set<std::string_view> names = {"__metadata__"};
  std::size_t at = 0;
  for (const TensorDeclaration& tensor : tensors) {
    ENGINE_ASSERT(names.insert(tensor.name).second, "tensor name {} is used twice or reserved",
                  printable(tensor.name));
    const std::size_t end = at + bytes_of(tensor);
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json_string(tensor.name), stored_name(tensor.dtype),
                        fmt::join(tensor.shape.dims(), ","), at, end);
    at = end;
  }
  json += '}';
  std::uint64_t length = json.size();
  length += (kDataAlignment - (8 + length) % kDataAlignment) % kDataAlignment;
  json.append(length - json.size(), ' ');
  std::string header(8, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile result;
  result.file_ = MappedFile(path);
  result.header_ = SafetensorsHeader::parse(result.file_.bytes(), path);
  for (std::size_t i = 0; i < result.header_.tensors.size(); ++i) {
    result.by_name_.emplace(result.header_.tensors[i].name, i);
  }
  return result;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  ENGINE_CHECK(tensor != nullptr, Errc::corrupt_data, "{}: no tensor {}", path().string(),
               printable(name));
  return *tensor;
}

std::span<const std::byte> SafetensorsFile::data(std::string_view name) const {
  const StoredTensor& tensor = at(name);
  return file_.bytes().subspan(header_.data_begin + tensor.begin, tensor.end - tensor.begin);
}

void SafetensorsFile::read_f32(std::string_view name, std::span<float> out,
                               std::int64_t first) const {
  const StoredTensor& tensor = at(name);
  const auto count = static_cast<std::int64_t>(out.size());
  ENGINE_ASSERT(first >= 0 && count <= tensor.numel() && first <= tensor.numel() - count,
                "{}: tensor {}: elements [{}, +{}) of {}", path().string(), printable(name), first,
                count, tensor.numel());
  const std::byte* source = data(name).data();
  const auto start = static_cast<std::size_t>(first);
  if (out.empty()) return;
  if (tensor.dtype == "F32") {
    std::memcpy(out.data(), source + start * sizeof(float), out.size_bytes());
  } else if (tensor.dtype == "BF16") {
    convert<bf16>(source + start * sizeof(bf16), out);
  } else if (tensor.dtype == "F16") {
    convert<f16>(source + start * sizeof(f16), out);
  } else if (tensor.dtype == "F64") {
    convert<double>(source + start * sizeof(double), out);
  } else {
    ENGINE_FAIL(Errc::corrupt_data, "{}: tensor {} has type {}: expected F32, BF16, F16 or F64",
                path().string(), printable(name), tensor.dtype);
  }
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorDeclaration> tensors,
                                     const Metadata& metadata)
    : tensors_(std::move(tensors)), file_(path) {
  file_.write(make_header(tensors_, metadata));
  skip_complete();
}

void SafetensorsWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  ENGINE_ASSERT(current_ < tensors_.size() && tensors_[current_].name == name,
                "{}: tensor {} is not the next one to be written", file_.path().string(),
                printable(name));
  ENGINE_ASSERT(bytes.size() <= bytes_of(tensors_[current_]) - written_bytes_,
                "{}: {} bytes too many for tensor {}", file_.path().string(), bytes.size(),
                printable(name));
  file_.write(bytes);
  written_bytes_ += bytes.size();
  skip_complete();
}

void SafetensorsWriter::append_f32(std::string_view name, std::span<const float> values) {
  if (values.empty()) return;
  ENGINE_ASSERT(current_ < tensors_.size() && tensors_[current_].name == name,
                "{}: tensor {} is not the next one to be written", file_.path().string(),
                printable(name));
  const DType dtype = tensors_[current_].dtype;
  if (dtype == DType::f32) return append(name, std::as_bytes(values));
  ENGINE_ASSERT(dtype == DType::bf16 || dtype == DType::f16, "floats for tensor {} of type {}",
                printable(name), engine::name(dtype));
  std::array<std::uint16_t, 8192> rounded;
  while (!values.empty()) {
    const std::size_t n = std::min(values.size(), rounded.size());
    for (std::size_t i = 0; i < n; ++i) {
      rounded[i] = dtype == DType::bf16 ? bf16(values[i]).bits : f16(values[i]).bits;
    }
    append(name, std::as_bytes(std::span(rounded).first(n)));
    values = values.subspan(n);
  }
}

void SafetensorsWriter::commit() {
  ENGINE_ASSERT(current_ == tensors_.size(), "{}: tensor {} has {} of {} bytes",
                file_.path().string(), printable(tensors_[current_].name), written_bytes_,
                bytes_of(tensors_[current_]));
  file_.commit();
}

void SafetensorsWriter::skip_complete() {
  while (current_ < tensors_.size() && written_bytes_ == bytes_of(tensors_[current_])) {
    ++current_;
    written_bytes_ = 0;
  }
}

}  // namespace engine::checkpoint

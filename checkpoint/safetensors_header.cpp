#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "engine/checkpoint/safetensors.hpp"
#include "engine/core/error.hpp"
#include "src/core/text.hpp"

namespace engine::checkpoint {

namespace {

using engine::detail::printable;

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr std::size_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";

std::optional<unsigned> bits_of(std::string_view dtype) {
  struct Entry {
    std::string_view name;
    unsigned bits;
  };
  static constexpr std::array<Entry, 22> kTypes = {
      {{"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},
       {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},     {"F8_E4M3FNUZ", 8},
       {"I16", 16}, {"U16", 16},    {"F16", 16},    {"F8_E5M2FNUZ", 8}, {"BF16", 16},
       {"I32", 32}, {"U32", 32},    {"F32", 32},    {"C64", 64},        {"F64", 64},
       {"I64", 64}, {"U64", 64}}};
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](const Entry& entry) { return entry.name == dtype; });
  if (found == kTypes.end()) return std::nullopt;
  return found->bits;
}

/// Receives the parser's events, so that neither a document nor deep nesting is ever built.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(std::string path, SafetensorsHeader& header)
      : path_(std::move(path)), header_(header) {}

  bool null() override {
    if (where_ != Where::top || key_ != kMetadataKey) unexpected("null");
    return true;
  }
  bool boolean(bool /*value*/) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t /*value*/) override { unexpected("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    unexpected("a number that is not a whole number below 2^64");
  }
  bool binary(binary_t& /*value*/) override { unexpected("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (where_ == Where::shape) {
      check(value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()),
            "a dimension of {} is too large", value);
      tensor_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (where_ == Where::offsets) {
      check(offsets_ < 2, "expected two data_offsets, got more");
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
    } else {
      unexpected("a number");
    }
    return true;
  }
  bool string(string_t& value) override {
    if (where_ == Where::metadata) {
      header_.metadata.emplace(key_, value);
    } else if (where_ == Where::tensor && field_ == Field::dtype) {
      tensor_.dtype = value;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    if (where_ == Where::start) {
      where_ = Where::top;
    } else if (where_ == Where::top && key_ == kMetadataKey) {
      where_ = Where::metadata;
    } else if (where_ == Where::top) {
      where_ = Where::tensor;
      tensor_ = {};
      tensor_.name = key_;
      fields_ = {};
      offsets_ = 0;
    } else {
      unexpected("an object");
    }
    return true;
  }
  bool key(string_t& name) override {
    if (where_ == Where::top) {
      key_ = name;
      check(names_.insert(name).second, "the name occurs twice");
    } else if (where_ == Where::metadata) {
      key_ = name;
      check(!header_.metadata.contains(name), "the metadata key occurs twice");
    } else {
      static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
      const auto* found = std::find(kFields.begin(), kFields.end(), name);
      check(found != kFields.end(), "unknown field {}; expected dtype, shape and data_offsets",
            printable(name));
      const auto index = static_cast<std::size_t>(found - kFields.begin());
      check(!fields_[index], "field \"{}\" occurs twice", *found);
      fields_[index] = true;
      field_ = static_cast<Field>(index);
    }
    return true;
  }
  bool end_object() override {
    if (where_ == Where::tensor) {
      check(fields_[0] && fields_[1] && fields_[2],
            "expected the fields dtype, shape and data_offsets, got fewer");
      check_size();
      header_.tensors.push_back(std::move(tensor_));
    }
    where_ = where_ == Where::top ? Where::start : Where::top;
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (where_ == Where::tensor && field_ == Field::shape) {
      where_ = Where::shape;
    } else if (where_ == Where::tensor && field_ == Field::offsets) {
      where_ = Where::offsets;
    } else {
      unexpected("an array");
    }
    return true;
  }
  bool end_array() override {
    check(where_ != Where::offsets || offsets_ == 2, "expected two data_offsets, got {}", offsets_);
    where_ = Where::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override {
    ENGINE_FAIL(Errc::corrupt_data,
                "{}: the header is not valid JSON at byte {} ({}): not a safetensors file, or "
                "damaged",
                path_, 8 + position, error.what());
  }

 private:
  enum class Where : std::uint8_t { start, top, metadata, tensor, shape, offsets };
  enum class Field : std::uint8_t { dtype, shape, offsets };

  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    ENGINE_CHECK(condition, Errc::corrupt_data, "{}: tensor {}: {}", path_, printable(key_),
                 fmt::format(text, std::forward<Args>(args)...));
  }
  [[noreturn]] void unexpected(std::string_view got) const {
    static constexpr std::array<std::string_view, 6> kWanted = {
        "an object",  "an object with the fields dtype, shape and data_offsets",
        "a string",   "a field: dtype a string, shape and data_offsets arrays",
        "dimensions", "two data_offsets"};
    ENGINE_FAIL(Errc::corrupt_data, "{}: header entry {}: expected {}, got {}", path_,
                printable(key_), kWanted[static_cast<std::size_t>(where_)], got);
  }

  void check_size() const {
    const std::optional<unsigned> bits = bits_of(tensor_.dtype);
    check(bits.has_value(), "unknown dtype {}", printable(tensor_.dtype));
    std::int64_t total_bits = 1;
    bool overflow = false;
    for (const std::int64_t size : tensor_.shape) {
      overflow = overflow || __builtin_mul_overflow(total_bits, size, &total_bits);
    }
    overflow = overflow ||
               __builtin_mul_overflow(total_bits, static_cast<std::int64_t>(*bits), &total_bits);
    check(!overflow, "the size of its shape is too large");
    check(total_bits % 8 == 0, "{} bits are not whole bytes", total_bits);
    check(tensor_.begin <= tensor_.end, "data_offsets [{}, {}] run backwards", tensor_.begin,
          tensor_.end);
    check(tensor_.end - tensor_.begin == static_cast<std::size_t>(total_bits / 8),
          "its shape and {} need {} bytes, data_offsets [{}, {}] hold {}", tensor_.dtype,
          total_bits / 8, tensor_.begin, tensor_.end, tensor_.end - tensor_.begin);
  }

  std::string path_;
  SafetensorsHeader& header_;
  Where where_ = Where::start;
  Field field_ = Field::dtype;
  std::string key_;
  StoredTensor tensor_;
  std::array<bool, 3> fields_ = {};
  int offsets_ = 0;
  std::unordered_set<std::string> names_;
};

void check_contiguous(const SafetensorsHeader& header, std::size_t data_bytes,
                      const std::string& path) {
  std::size_t end = 0;
  for (const StoredTensor& tensor : header.tensors) {
    ENGINE_CHECK(tensor.begin == end, Errc::corrupt_data,
                 "{}: tensor {}: its data must start at {}, where the data before it end, got {}: "
                 "the file has {}",
                 path, printable(tensor.name), end, tensor.begin,
                 tensor.begin < end ? "overlapping tensors" : "a hole");
    end = tensor.end;
  }
  ENGINE_CHECK(end == data_bytes, Errc::corrupt_data,
               "{}: the tensors need {} bytes of data, the file holds {}: {}", path, end,
               data_bytes,
               end > data_bytes ? "it is truncated, copy it again" : "it has bytes past the end");
}

}  // namespace

std::int64_t StoredTensor::numel() const noexcept {
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  return n;
}

SafetensorsHeader SafetensorsHeader::parse(std::span<const std::byte> file,
                                           const std::filesystem::path& path) {
  const std::string name = path.string();
  ENGINE_CHECK(file.size() >= 8, Errc::corrupt_data,
               "{}: expected a safetensors file, got one of {} bytes", name, file.size());
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  ENGINE_CHECK(length <= kMaxHeaderBytes, Errc::corrupt_data,
               "{}: header length {}: expected at most {}; not a safetensors file, or damaged",
               name, length, kMaxHeaderBytes);
  ENGINE_CHECK(length <= file.size() - 8, Errc::corrupt_data,
               "{}: header of {} bytes in a file of {}: it is truncated, copy it again", name,
               length, file.size());
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  ENGINE_CHECK(text.starts_with('{'), Errc::corrupt_data,
               "{}: the header does not start with '{{': not a safetensors file, or damaged", name);
  // The parser would take a zero byte for the end of its input.
  ENGINE_CHECK(text.find('\0') == std::string_view::npos, Errc::corrupt_data,
               "{}: zero byte in the header: not a safetensors file, or damaged", name);

  SafetensorsHeader header;
  HeaderHandler handler(name, header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  header.data_begin = 8 + length;
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const StoredTensor& a, const StoredTensor& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  check_contiguous(header, file.size() - header.data_begin, name);
  return header;
}

}  // namespace engine::checkpoint

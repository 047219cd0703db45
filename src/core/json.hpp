#pragma once
// JSON files read with typed access whose errors name file and key.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace engine::detail {

/// A value inside a JSON document, which it keeps alive. Every wrong type, missing key or value out
/// of range throws Errc::corrupt_data naming file and key.
class Json {
 public:
  /// Parses `text`; duplicate keys and nesting deeper than 32 are refused. `file` is for messages.
  static Json parse(std::string_view text, std::string file);

  /// The member `key` of an object; nothing if it is missing or null.
  std::optional<Json> find(std::string_view key) const;
  /// The member `key` of an object, which must be there and not null.
  Json at(std::string_view key) const;
  /// Keys of an object, in alphabetical order.
  std::vector<std::string> keys() const;
  /// Elements of an array.
  std::vector<Json> elements() const;

  bool is_object() const noexcept;
  std::string string() const;
  bool boolean() const;
  double number() const;
  /// A whole number in [least, most].
  std::int64_t integer(std::int64_t least, std::int64_t most) const;

  /// Where the value is, for messages: "FILE: key \"a.b\"".
  std::string where() const;
  /// The value as JSON, shortened, for messages.
  std::string text() const;

 private:
  struct Node;
  std::shared_ptr<const Node> node_;
};

}  // namespace engine::detail

#pragma once
// JSON: files read with typed access whose errors name file and key, and documents to be written.
// json.cpp alone includes the library behind it, which is slow to compile.
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/core/function_ref.hpp"

namespace engine::detail {

/// A value inside a JSON document, which it keeps alive; cheap to copy. Every wrong type, missing
/// key or value out of range throws Errc::corrupt_data naming file and key.
class Json {
 public:
  /// `integer`: a whole number; `number`: any other.
  enum class Kind : std::uint8_t { null, boolean, integer, number, string, array, object };

  /// Parses `text`; duplicate keys and nesting deeper than 32 are refused. `file` is for messages.
  static Json parse(std::string_view text, std::string file);
  /// Parses any JSON; nothing if `text` is none. Of duplicate keys the last one counts.
  static std::optional<Json> try_parse(std::string_view text, std::string file);

  /// The member `key` of an object; nothing if it is missing or null.
  std::optional<Json> find(std::string_view key) const;
  /// The same, where null is a value like others.
  std::optional<Json> find_or_null(std::string_view key) const;
  /// The member `key` of an object, which must be there and not null.
  Json at(std::string_view key) const;
  /// Visits the members of an object, nulls too, in alphabetical order.
  void for_each_member(FunctionRef<void(const std::string& key, const Json& value)> visit) const;
  /// Elements of an array.
  std::vector<Json> elements() const;

  Kind kind() const noexcept;
  bool is_object() const noexcept { return kind() == Kind::object; }
  /// Lives as long as the document.
  const std::string& string() const;
  bool boolean() const;
  double number() const;
  /// A whole number in [least, most].
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  /// The same; nothing in place of an error.
  std::optional<std::int64_t> find_integer(std::int64_t least, std::int64_t most) const noexcept;

  /// Where the value is, for messages: "FILE: key \"a.b\"".
  std::string where() const;
  /// The value as JSON, shortened, for messages.
  std::string text() const;

 private:
  struct Document;
  Json(std::shared_ptr<const Document> document, const void* value)
      : document_(std::move(document)), value_(value) {}
  [[noreturn]] void wrong(std::string_view expected) const;

  std::shared_ptr<const Document> document_;
  const void* value_;  ///< in the document, of the library's type
};

/// A JSON value to be written: null, string, number (null if not finite), boolean, array or object.
/// Objects keep the order of their members.
class JsonValue {
 public:
  using Member = std::pair<std::string_view, JsonValue>;

  static JsonValue array(std::initializer_list<JsonValue> elements = {});
  static JsonValue array(std::span<const std::int64_t> elements);
  static JsonValue object(std::initializer_list<Member> members = {});

  JsonValue();  ///< null
  JsonValue(std::string_view text);
  JsonValue(const std::string& text) : JsonValue(std::string_view(text)) {}
  JsonValue(const char* text) : JsonValue(std::string_view(text)) {}
  JsonValue(double value);
  JsonValue(std::same_as<bool> auto value) : JsonValue(value, Boolean()) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonValue(T value)
      : JsonValue(
            static_cast<std::conditional_t<std::signed_integral<T>, std::int64_t, std::uint64_t>>(
                value),
            Integer()) {}
  ~JsonValue();
  JsonValue(const JsonValue& other);
  JsonValue(JsonValue&& other) noexcept;
  JsonValue& operator=(JsonValue other) noexcept;

  /// Sets a member of an object, or of a null, which becomes one.
  JsonValue& set(std::string_view key, JsonValue value);
  /// Appends to an array, or to a null, which becomes one.
  JsonValue& push(JsonValue value);

  /// The text: one line, or `indent` spaces a level. What is not UTF-8 is replaced by U+FFFD.
  std::string dump(int indent = -1) const;

 private:
  struct Boolean {};
  struct Integer {};
  struct Node;
  JsonValue(bool value, Boolean);
  JsonValue(std::int64_t value, Integer);
  JsonValue(std::uint64_t value, Integer);

  std::unique_ptr<Node> node_;
};

/// `text` as a JSON string. Throws Errc::internal if it is not UTF-8.
std::string json_string(std::string_view text);

}  // namespace engine::detail

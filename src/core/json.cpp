#include "src/core/json.hpp"

#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.hpp"
#include "src/core/text.hpp"

namespace engine::detail {

using Parsed = nlohmann::json;

struct Json::Document {
  Parsed root;
  std::string file;

  static std::shared_ptr<const Document> make(Parsed&& root, std::string&& file) {
    return std::make_shared<const Document>(Document{std::move(root), std::move(file)});
  }
  static const Parsed& value(const Json& json) noexcept {
    return *static_cast<const Parsed*>(json.value_);
  }
  /// Keys and indices that lead to a value, joined by dots. Searched for, as only errors need it.
  std::string path_of(const Parsed* wanted) const {
    struct Level {
      const Parsed* value;
      Parsed::const_iterator next;
    };
    if (wanted == &root) return "";
    std::vector<Level> open = {{&root, root.begin()}};
    while (!open.empty()) {
      Level& level = open.back();
      if (level.next == level.value->end()) {
        open.pop_back();
        if (!open.empty()) ++open.back().next;
        continue;
      }
      const Parsed& child = *level.next;
      if (&child == wanted) break;
      if (child.is_structured()) {
        open.push_back({&child, child.begin()});
      } else {
        ++level.next;
      }
    }
    std::string path;
    for (const Level& level : open) {
      if (!path.empty()) path += '.';
      path += level.value->is_object() ? level.next.key()
                                       : std::to_string(level.next - level.value->begin());
    }
    return path;
  }
};

Json Json::parse(std::string_view text, std::string file) {
  constexpr int kMaxDepth = 32;
  ENGINE_CHECK(text.find('\0') == std::string_view::npos, Errc::corrupt_data,
               "{}: zero byte in a JSON file", file);
  std::vector<std::set<std::string>> open_objects;
  const auto refuse = [&](int depth, Parsed::parse_event_t event, Parsed& parsed) {
    using Event = Parsed::parse_event_t;
    ENGINE_CHECK(depth < kMaxDepth, Errc::corrupt_data, "{}: nested more than {} deep", file,
                 kMaxDepth);
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_end) open_objects.pop_back();
    if (event == Event::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      ENGINE_CHECK(open_objects.back().insert(name).second, Errc::corrupt_data,
                   "{}: key {} occurs twice", file, printable(name));
    }
    return true;
  };
  try {
    const auto document =
        Document::make(Parsed::parse(text.begin(), text.end(), refuse), std::move(file));
    return {document, &document->root};
  } catch (const Parsed::exception& error) {
    ENGINE_FAIL(Errc::corrupt_data, "{}: not valid JSON: {}", file, error.what());
  }
}

std::optional<Json> Json::try_parse(std::string_view text, std::string file) {
  Parsed root = Parsed::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return std::nullopt;
  const auto document = Document::make(std::move(root), std::move(file));
  return Json(document, &document->root);
}

std::optional<Json> Json::find_or_null(std::string_view key) const {
  const Parsed& value = Document::value(*this);
  if (!value.is_object()) wrong("an object");
  const auto member = value.find(std::string(key));
  if (member == value.end()) return std::nullopt;
  return Json(document_, &*member);
}

std::optional<Json> Json::find(std::string_view key) const {
  std::optional<Json> member = find_or_null(key);
  if (member && member->kind() == Kind::null) return std::nullopt;
  return member;
}

Json Json::at(std::string_view key) const {
  std::optional<Json> member = find(key);
  if (member) return *std::move(member);
  std::string path = document_->path_of(&Document::value(*this));
  if (!path.empty()) path += '.';
  ENGINE_FAIL(Errc::corrupt_data, "{}: key {} is missing", document_->file,
              printable(path.append(key)));
}

void Json::for_each_member(FunctionRef<void(const std::string&, const Json&)> visit) const {
  if (!is_object()) wrong("an object");
  Json member = *this;
  for (const auto& [key, value] : Document::value(*this).items()) {
    member.value_ = &value;
    visit(key, member);
  }
}

std::vector<Json> Json::elements() const {
  const Parsed& value = Document::value(*this);
  if (!value.is_array()) wrong("an array");
  std::vector<Json> elements;
  elements.reserve(value.size());
  for (const Parsed& element : value) elements.push_back(Json(document_, &element));
  return elements;
}

Json::Kind Json::kind() const noexcept {
  switch (Document::value(*this).type()) {
    case Parsed::value_t::boolean:
      return Kind::boolean;
    case Parsed::value_t::number_integer:
    case Parsed::value_t::number_unsigned:
      return Kind::integer;
    case Parsed::value_t::number_float:
      return Kind::number;
    case Parsed::value_t::string:
      return Kind::string;
    case Parsed::value_t::array:
      return Kind::array;
    case Parsed::value_t::object:
      return Kind::object;
    default:
      return Kind::null;
  }
}

const std::string& Json::string() const {
  if (kind() != Kind::string) wrong("a string");
  return Document::value(*this).get_ref<const std::string&>();
}

bool Json::boolean() const {
  if (kind() != Kind::boolean) wrong("true or false");
  return Document::value(*this).get<bool>();
}

double Json::number() const {
  if (!Document::value(*this).is_number()) wrong("a number");
  return Document::value(*this).get<double>();
}

std::int64_t Json::integer(std::int64_t least, std::int64_t most) const {
  const auto value = find_integer(least, most);
  if (!value) wrong(fmt::format("a whole number from {} to {}", least, most));
  return *value;
}

std::optional<std::int64_t> Json::find_integer(std::int64_t least,
                                               std::int64_t most) const noexcept {
  const Parsed& value = Document::value(*this);
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
    return std::nullopt;
  }
  const auto number = value.get<std::int64_t>();
  return number >= least && number <= most ? std::optional(number) : std::nullopt;
}

std::string Json::where() const {
  const std::string path = document_->path_of(&Document::value(*this));
  return path.empty() ? document_->file
                      : fmt::format("{}: key {}", document_->file, printable(path));
}

std::string Json::text() const {
  const Parsed& value = Document::value(*this);
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return value.is_string() ? printable(string()) : value.dump();
}

void Json::wrong(std::string_view expected) const {
  ENGINE_FAIL(Errc::corrupt_data, "{}: expected {}, got {}", where(), expected, text());
}

struct JsonValue::Node {
  nlohmann::ordered_json json;
};

JsonValue::JsonValue() : node_(std::make_unique<Node>()) {}
JsonValue::JsonValue(std::string_view text) : JsonValue() { node_->json = text; }
JsonValue::JsonValue(double value) : JsonValue() { node_->json = value; }
JsonValue::JsonValue(bool value, Boolean) : JsonValue() { node_->json = value; }
JsonValue::JsonValue(std::int64_t value, Integer) : JsonValue() { node_->json = value; }
JsonValue::JsonValue(std::uint64_t value, Integer) : JsonValue() { node_->json = value; }
JsonValue::~JsonValue() = default;
JsonValue::JsonValue(const JsonValue& other) : node_(std::make_unique<Node>(*other.node_)) {}
JsonValue::JsonValue(JsonValue&& other) noexcept = default;
JsonValue& JsonValue::operator=(JsonValue other) noexcept {
  node_.swap(other.node_);
  return *this;
}

JsonValue JsonValue::array(std::initializer_list<JsonValue> elements) {
  JsonValue array;
  array.node_->json = nlohmann::ordered_json::array();
  for (const JsonValue& element : elements) array.push(element);
  return array;
}

JsonValue JsonValue::array(std::span<const std::int64_t> elements) {
  JsonValue array = JsonValue::array();
  for (const std::int64_t element : elements) array.node_->json.push_back(element);
  return array;
}

JsonValue JsonValue::object(std::initializer_list<Member> members) {
  JsonValue object;
  object.node_->json = nlohmann::ordered_json::object();
  for (const auto& [key, value] : members) object.set(key, value);
  return object;
}

JsonValue& JsonValue::set(std::string_view key, JsonValue value) {
  node_->json[std::string(key)] = std::move(value.node_->json);
  return *this;
}

JsonValue& JsonValue::push(JsonValue value) {
  node_->json.push_back(std::move(value.node_->json));
  return *this;
}

std::string JsonValue::dump(int indent) const {
  return node_->json.dump(indent, ' ', /*ensure_ascii=*/false,
                          nlohmann::ordered_json::error_handler_t::replace);
}

std::string json_string(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception& error) {
    ENGINE_FAIL(Errc::internal, "{} cannot be written as JSON: {}", printable(text), error.what());
  }
}

}  // namespace engine::detail

#include "src/core/json.hpp"

#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.hpp"
#include "src/core/text.hpp"

namespace engine::detail {

struct Json::Node {
  std::shared_ptr<const nlohmann::json> document;
  const nlohmann::json* value;
  std::string file;
  std::string key;

  [[noreturn]] void wrong(std::string_view expected) const {
    ENGINE_FAIL(Errc::corrupt_data, "{}: key {}: expected {}, got {}", file, printable(key),
                expected, shortened());
  }
  std::string shortened() const {
    if (value->is_object()) return "an object";
    if (value->is_array()) return "an array";
    return printable(value->dump());
  }
  std::shared_ptr<const Node> child(const nlohmann::json& member, const std::string& name) const {
    return std::make_shared<const Node>(
        Node{document, &member, file, key.empty() ? name : key + "." + name});
  }
};

Json Json::parse(std::string_view text, std::string file) {
  constexpr int kMaxDepth = 32;
  ENGINE_CHECK(text.find('\0') == std::string_view::npos, Errc::corrupt_data,
               "{}: zero byte in a JSON file", file);
  std::vector<std::set<std::string>> open_objects;
  const auto refuse = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
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
    auto document = std::make_shared<const nlohmann::json>(
        nlohmann::json::parse(text.begin(), text.end(), refuse));
    Json json;
    const nlohmann::json* value = document.get();
    json.node_ =
        std::make_shared<const Node>(Node{std::move(document), value, std::move(file), ""});
    return json;
  } catch (const nlohmann::json::exception& error) {
    ENGINE_FAIL(Errc::corrupt_data, "{}: not valid JSON: {}", file, error.what());
  }
}

std::optional<Json> Json::find(std::string_view key) const {
  if (!node_->value->is_object()) node_->wrong("an object");
  const auto member = node_->value->find(std::string(key));
  if (member == node_->value->end() || member->is_null()) return std::nullopt;
  Json json;
  json.node_ = node_->child(*member, std::string(key));
  return json;
}

Json Json::at(std::string_view key) const {
  std::optional<Json> member = find(key);
  ENGINE_CHECK(
      member.has_value(), Errc::corrupt_data, "{}: key {} is missing", node_->file,
      printable(node_->key.empty() ? std::string(key) : node_->key + "." + std::string(key)));
  return *std::move(member);
}

std::vector<std::string> Json::keys() const {
  if (!node_->value->is_object()) node_->wrong("an object");
  std::vector<std::string> keys;
  for (const auto& [key, value] : node_->value->items()) keys.push_back(key);
  return keys;
}

std::vector<Json> Json::elements() const {
  if (!node_->value->is_array()) node_->wrong("an array");
  std::vector<Json> elements;
  for (const nlohmann::json& element : *node_->value) {
    elements.emplace_back().node_ = node_->child(element, std::to_string(elements.size() - 1));
  }
  return elements;
}

bool Json::is_object() const noexcept { return node_->value->is_object(); }

std::string Json::string() const {
  if (!node_->value->is_string()) node_->wrong("a string");
  return node_->value->get<std::string>();
}

bool Json::boolean() const {
  if (!node_->value->is_boolean()) node_->wrong("true or false");
  return node_->value->get<bool>();
}

double Json::number() const {
  if (!node_->value->is_number()) node_->wrong("a number");
  return node_->value->get<double>();
}

std::int64_t Json::integer(std::int64_t least, std::int64_t most) const {
  const nlohmann::json& value = *node_->value;
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX)
                        : value.is_number_integer();
  if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
    node_->wrong(fmt::format("a whole number from {} to {}", least, most));
  }
  return value.get<std::int64_t>();
}

std::string Json::where() const {
  return fmt::format("{}: key {}", node_->file, printable(node_->key));
}

std::string Json::text() const { return node_->shortened(); }

}  // namespace engine::detail

#include "engine/train/config.hpp"

#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <type_traits>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "config_table.hpp"
#include "engine/core/error.hpp"

namespace engine::train {
namespace {

using detail::Row;

template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;

template <class T>
std::string_view type_name() {
  if constexpr (std::is_same_v<T, std::int64_t>) return "an integer";
  if constexpr (std::is_same_v<T, double>) return "a number";
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::string>) return "a string";
  return "?";
}

std::string shown(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& n) { text << n; });
  return text.str();
}

/// Reads one TOML value as T, or says what was expected.
template <class T>
T read_scalar(const toml::node& node, const std::string& where, const Row& row) {
  T value{};
  bool fits = false;
  if constexpr (std::is_same_v<T, double>) {
    fits = node.is_number();
    // Not node.value<double>(), which gives nothing for an integer that a double has to round.
    if (node.is_integer()) value = static_cast<double>(node.as_integer()->get());
    if (node.is_floating_point()) value = node.as_floating_point()->get();
  } else if constexpr (std::is_same_v<T, std::string>) {
    // A number is fine where a text key may hold one (precision.loss_scale).
    fits = node.is_string() || (node.is_number() && row.key == "precision.loss_scale");
    if (fits) value = node.is_string() ? *node.value<std::string>() : shown(node);
  } else {
    fits = node.is<T>();
    if (fits) value = *node.value<T>();
  }
  ENGINE_CHECK(fits, Errc::invalid_argument, "{}: {} = {}: expected {}", where, row.key,
               shown(node), type_name<T>());
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    const auto number = static_cast<double>(value);
    ENGINE_CHECK(std::isfinite(number) && number >= row.least && number <= row.most,
                 Errc::invalid_argument, "{}: {} = {}: expected a value from {} to {}", where,
                 row.key, shown(node), row.least, row.most);
  }
  if constexpr (std::is_same_v<T, std::string>) {
    bool known = row.choices.empty();
    std::string choices;
    for (const std::string_view choice : row.choices) {
      known = known || choice == value;
      choices += fmt::format("{}\"{}\"", choices.empty() ? "" : ", ", choice);
    }
    ENGINE_CHECK(known, Errc::invalid_argument, "{}: {} = \"{}\": expected one of {}", where,
                 row.key, value, choices);
  }
  return value;
}

void assign(Config& config, const Row& row, const toml::node& node, const std::string& where) {
  std::visit(
      [&](const auto& field) {
        auto& target = field(config);
        using T = std::remove_reference_t<decltype(target)>;
        if constexpr (kIsList<T>) {
          using E = typename T::value_type;
          const toml::array* list = node.as_array();
          ENGINE_CHECK(list != nullptr, Errc::invalid_argument,
                       "{}: {} = {}: expected a list such as [...], each element {}", where,
                       row.key, shown(node), type_name<E>());
          target.clear();
          for (const toml::node& element : *list) {
            target.push_back(read_scalar<E>(element, where, row));
          }
        } else {
          target = read_scalar<T>(node, where, row);
        }
      },
      row.field);
  config.given.insert(std::string(row.key));
}

std::string location(std::string_view origin, const toml::node& node) {
  const auto line = node.source().begin.line;
  return line == 0 ? std::string(origin) : fmt::format("{} line {}", origin, line);
}

void apply(Config& config, const toml::table& table, const std::string& prefix,
           std::string_view origin) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (const Row* row = detail::find_row(key)) {
      assign(config, *row, node, location(origin, node));
      continue;
    }
    const bool known_table = [&] {
      for (const Row& row : detail::config_table()) {
        if (row.key.starts_with(key + ".")) return true;
      }
      return false;
    }();
    ENGINE_CHECK(!known_table || node.is_table(), Errc::invalid_argument,
                 "{}: {} is a table: write [{}] and its keys below", location(origin, node), key,
                 key);
    if (const toml::table* inner = node.as_table()) {
      if (known_table || !inner->empty()) {
        apply(config, *inner, key + ".", origin);
        continue;
      }
    }
    ENGINE_FAIL(Errc::invalid_argument, "{}: unknown key {}; did you mean {}?",
                location(origin, node), key.substr(0, 100),
                detail::nearest_key(key.substr(0, 100)));
  }
}

/// Keys with many dots make tables within tables, which the parser walks by recursion.
void refuse_deep_keys(std::string_view text, std::string_view origin) {
  constexpr int kMostDots = 64;
  int dots = 0;
  for (const char c : text) {
    const bool in_key = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' ||
                        c == '.' || c == ' ' || c == '\t' || c == '"' || c == '\'';
    dots = in_key ? dots + (c == '.' ? 1 : 0) : 0;
    ENGINE_CHECK(dots <= kMostDots, Errc::invalid_argument,
                 "{}: a run of more than {} dots: keys have two parts, as in train.steps", origin,
                 kMostDots);
  }
}

toml::table parse(std::string_view text, std::string_view origin) {
  refuse_deep_keys(text, origin);
  try {
    return toml::parse(text, origin);
  } catch (const toml::parse_error& e) {
    ENGINE_FAIL(Errc::invalid_argument, "{} line {} column {}: not valid TOML: {}", origin,
                e.source().begin.line, e.source().begin.column, e.description());
  }
}

/// "key = value" with a bare word read as a string.
toml::table parse_assignment(const std::string& key, const std::string& value) {
  try {
    return toml::parse(key + " = " + value);
  } catch (const toml::parse_error&) {
    toml::table table;
    toml::table* at = &table;
    std::size_t begin = 0;
    for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', begin)) {
      at = at->insert(key.substr(begin, dot - begin), toml::table{}).first->second.as_table();
      begin = dot + 1;
    }
    at->insert(key.substr(begin), value);
    return table;
  }
}

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

template <class T>
std::string printed(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return quoted(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, double>) {
    const std::string text = fmt::format("{}", value);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  } else if constexpr (kIsList<T>) {
    std::string text = "[";
    for (const auto& element : value) text += (text.size() > 1 ? ", " : "") + printed(element);
    return text + "]";
  } else {
    return std::to_string(value);
  }
}

std::string value_text(const Row& row, const Config& config) {
  auto& c = const_cast<Config&>(config);  // the table's accessors serve reading and writing
  return std::visit([&](const auto& field) { return printed(field(c)); }, row.field);
}

/// Whether a value still stands for "derived from other keys": the key itself would not take it.
bool is_placeholder(const Row& row, const Config& config) {
  auto& c = const_cast<Config&>(config);
  return std::visit(
      [&](const auto& field) {
        const auto& value = field(c);
        using T = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return value.empty() && !row.choices.empty();
        } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
          return static_cast<double>(value) < row.least;
        } else {
          return false;
        }
      },
      row.field);
}

std::string type_text(const Row& row) {
  return std::visit(
      [&](const auto& field) -> std::string {
        using T = std::remove_reference_t<decltype(field(std::declval<Config&>()))>;
        if constexpr (kIsList<T>) return "list";
        if constexpr (std::is_same_v<T, std::int64_t>) return "integer";
        if constexpr (std::is_same_v<T, double>) return "number";
        if constexpr (std::is_same_v<T, bool>) return "boolean";
        return "string";
      },
      row.field);
}

}  // namespace

Config parse_config(std::string_view text, std::string_view origin, Overrides overrides) {
  Config config;
  apply(config, parse(text, origin), "", origin);
  for (const auto& [key, value] : overrides) {
    ENGINE_CHECK(detail::find_row(key) != nullptr, Errc::invalid_argument,
                 "--set {}={}: unknown key; did you mean {}?", key, value,
                 detail::nearest_key(key));
    apply(config, parse_assignment(key, value), "", "--set " + key);
  }
  return config;
}

Config load_config(const std::string& path, Overrides overrides) {
  std::error_code ignored;
  ENGINE_CHECK(!std::filesystem::is_directory(path, ignored), Errc::invalid_argument,
               "cannot read config {}: it is a directory", path);
  std::ifstream file(path, std::ios::binary);
  ENGINE_CHECK(file.good(), Errc::invalid_argument, "cannot read config {}: {}", path,
               std::generic_category().message(errno));
  std::ostringstream text;
  text << file.rdbuf();
  return parse_config(text.str(), path, overrides);
}

std::pair<std::string, std::string> parse_override(const std::string& argument) {
  ENGINE_CHECK(argument.find('\n') == std::string::npos, Errc::invalid_argument,
               "--set takes one key=value on one line");
  const std::size_t equals = argument.find('=');
  ENGINE_CHECK(equals != std::string::npos && equals > 0, Errc::invalid_argument,
               "--set {}: expected key=value, for example train.steps=100", argument);
  const auto trim = [](std::string_view s) {
    const std::size_t begin = s.find_first_not_of(' ');
    if (begin == std::string_view::npos) return std::string();
    return std::string(s.substr(begin, s.find_last_not_of(' ') - begin + 1));
  };
  return {trim(std::string_view(argument).substr(0, equals)),
          trim(std::string_view(argument).substr(equals + 1))};
}

std::string to_toml(const Config& config) {
  std::string text;
  std::string_view table;
  for (const Row& row : detail::config_table()) {
    const std::size_t dot = row.key.find('.');
    if (row.key.substr(0, dot) != table) {
      table = row.key.substr(0, dot);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", table);
    }
    if (is_placeholder(row, config)) continue;
    text += fmt::format("{} = {}\n", row.key.substr(dot + 1), value_text(row, config));
  }
  return text;
}

std::vector<ConfigChange> differences(const Config& before, const Config& after) {
  std::vector<ConfigChange> changes;
  for (const Row& row : detail::config_table()) {
    std::string was = value_text(row, before);
    std::string is = value_text(row, after);
    if (was != is) changes.push_back({row.key, std::move(was), std::move(is)});
  }
  return changes;
}

std::string config_reference() {
  std::string text =
      "# Config keys\n\n"
      "Made by `train --config-reference`; a test keeps it true. A config is a TOML file; any key "
      "can "
      "be overridden with `--set table.key=value`. An unknown key is an error that names the "
      "nearest "
      "known one. Relative paths start at the working directory. Where a meaning says \"this "
      "version\", other values are refused by name.\n";
  std::string_view table;
  const Config defaults;
  for (const Row& row : detail::config_table()) {
    const std::size_t dot = row.key.find('.');
    if (row.key.substr(0, dot) != table) {
      table = row.key.substr(0, dot);
      text += fmt::format("\n## [{}]\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
                          table);
    }
    std::string choices;
    for (const std::string_view choice : row.choices) {
      choices += fmt::format("{}`{}`", choices.empty() ? " One of " : ", ", choice);
    }
    if (!choices.empty()) choices += ".";
    text += fmt::format("| `{}` | {} | {} | {}{} |\n", row.key.substr(dot + 1), type_text(row),
                        row.default_text.empty() ? "`" + value_text(row, defaults) + "`"
                                                 : std::string(row.default_text),
                        row.doc, choices);
  }
  return text;
}

}  // namespace engine::train

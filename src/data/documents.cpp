#include "src/data/documents.hpp"

#include <algorithm>
#include <string>

#include "engine/core/error.hpp"
#include "src/core/json.hpp"

namespace engine::data::detail {
namespace {

using engine::detail::Json;

/// Takes the first line off `rest`, with its line end.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end == std::string_view::npos ? end : end + 1);
  rest.remove_prefix(line.size());
  return line;
}

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

/// Documents are runs of lines. A separator line ends the run and belongs to what is before it, as
/// do the separators at the start of a file to its first document.
void split_lines(std::string_view text, DocumentSplit split,
                 FunctionRef<void(const Document&)> take) {
  const auto separates = [&](std::string_view line) {
    return split == DocumentSplit::line ? without_line_end(line).empty() : is_blank(line);
  };
  std::string_view rest = text;
  const auto position = [&] { return text.size() - rest.size(); };
  const auto next_is_separator = [&] {
    std::string_view ahead = rest;
    return separates(take_line(ahead));
  };
  std::size_t whole_begin = 0;
  while (!rest.empty() && next_is_separator()) take_line(rest);
  while (!rest.empty()) {
    const std::size_t begin = position();
    take_line(rest);
    while (split == DocumentSplit::blank && !rest.empty() && !next_is_separator()) take_line(rest);
    const std::size_t end = position();
    while (!rest.empty() && next_is_separator()) take_line(rest);
    take({without_line_end(text.substr(begin, end - begin)),
          text.substr(whole_begin, position() - whole_begin), position()});
    whole_begin = position();
  }
}

void split_json_lines(const MappedFile& file, std::string_view text,
                      FunctionRef<void(const Document&)> take) {
  std::string_view rest = text;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = take_line(rest);
    if (is_blank(line)) continue;
    const std::string where = fmt::format("{}:{}", file.path().string(), number);
    const auto object = Json::try_parse(line, where);
    ENGINE_CHECK(object, Errc::corrupt_data,
                 "{}: not valid JSON: expected one object a line, in UTF-8", where);
    const std::string& value = object->at("text").string();
    if (!value.empty()) take({value, value, text.size() - rest.size()});
  }
}

}  // namespace

void for_each_document(const MappedFile& file, DocumentSplit split,
                       FunctionRef<void(const Document&)> take) {
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
  if (file.path().extension() == ".jsonl") {
    split_json_lines(file, text, take);
  } else if (split != DocumentSplit::file) {
    split_lines(text, split, take);
  } else if (!text.empty()) {
    take({text, text, text.size()});
  }
}

}  // namespace engine::data::detail

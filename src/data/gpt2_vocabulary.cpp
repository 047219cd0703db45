#include "src/data/gpt2_vocabulary.hpp"

#include <set>
#include <unordered_map>
#include <utility>

#include "engine/core/error.hpp"
#include "src/core/json.hpp"
#include "src/core/text.hpp"

namespace engine::data::detail {
namespace {

using engine::detail::Json;
using engine::detail::printable;

constexpr const char* kEndOfText = "<|endoftext|>";

/// The inverse of GPT-2's bytes_to_unicode: printable bytes stand for themselves, the others, in
/// order, are U+0100 and up. -1: no byte.
std::array<int, 0x144> make_byte_of() {
  std::array<int, 0x144> byte_of;
  byte_of.fill(-1);
  std::size_t next = 0x100;
  for (std::size_t b = 0; b < 256; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    byte_of[itself ? b : next++] = static_cast<int>(b);
  }
  return byte_of;
}

/// Bytes that a token of the vocabulary stands for; nothing if a character stands for no byte.
std::optional<std::string> bytes_of(std::string_view token) {
  static const std::array<int, 0x144> kByteOf = make_byte_of();
  std::string bytes;
  for (std::size_t i = 0; i < token.size(); ++i) {
    auto code = static_cast<std::size_t>(static_cast<unsigned char>(token[i]));
    if (code >= 0x80) {  // JSON is checked UTF-8, so a two-byte sequence is whole
      if ((code & 0xE0U) != 0xC0U || ++i == token.size()) return std::nullopt;
      code = (code & 0x1FU) << 6 | (static_cast<unsigned char>(token[i]) & 0x3FU);
    }
    if (code >= kByteOf.size() || kByteOf[code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOf[code]));
  }
  return bytes;
}

class Parser {
 public:
  explicit Parser(std::string where) : where_(std::move(where)) { result_.byte_ids.fill(-1); }

  /// A `literal` token is an added one: its text is meant as it stands, and no merge makes it.
  void add_token(const std::string& token, const Json& id, bool literal) {
    ENGINE_CHECK(id.kind() == Json::Kind::integer, Errc::corrupt_data,
                 "{}: token {}: expected an integer id, got {}", where_, printable(token),
                 id.text());
    const auto value = id.find_integer(0, INT32_MAX - 1);
    ENGINE_CHECK(value, Errc::corrupt_data, "{}: token {}: expected an id in [0, 2^31), got {}",
                 where_, printable(token), id.text());
    const auto number = static_cast<std::int32_t>(*value);
    const auto [known, fresh] = ids_.try_emplace(token, Entry{number, literal});
    ENGINE_CHECK(known->second.id == number, Errc::corrupt_data, "{}: token {} has ids {} and {}",
                 where_, printable(token), known->second.id, number);
    if (!fresh) return;
    std::optional<std::string> bytes = literal ? token : bytes_of(token);
    ENGINE_CHECK(bytes && !bytes->empty(), Errc::corrupt_data,
                 "{}: token {}: expected one or more characters of the byte alphabet", where_,
                 printable(token));
    if (!literal && bytes->size() == 1) {
      result_.byte_ids[static_cast<unsigned char>(bytes->front())] = number;
    }
    pieces_.emplace_back(number, std::move(*bytes));
  }

  void add_merge(const std::string& left, const std::string& right, std::size_t number) {
    const auto id_of = [&](const std::string& token) {
      const auto found = ids_.find(token);
      ENGINE_CHECK(found != ids_.end() && !found->second.literal, Errc::corrupt_data,
                   "{}: merge {}: token {} is not in the vocabulary", where_, number,
                   printable(token));
      return found->second.id;
    };
    const Merge merge = {id_of(left), id_of(right), id_of(left + right)};
    ENGINE_CHECK(pairs_.emplace(merge.left, merge.right).second, Errc::corrupt_data,
                 "{}: merge {}: the pair {} {} is there twice", where_, number, printable(left),
                 printable(right));
    result_.merges.push_back(merge);
  }

  Gpt2Vocabulary finish() {
    result_.pieces.resize(pieces_.size());
    for (auto& [id, bytes] : pieces_) {
      const auto index = static_cast<std::size_t>(id);
      ENGINE_CHECK(index < pieces_.size(), Errc::corrupt_data,
                   "{}: {} tokens have ids up to {}: expected every id from 0 to {}", where_,
                   pieces_.size(), id, pieces_.size() - 1);
      ENGINE_CHECK(result_.pieces[index].empty(), Errc::corrupt_data,
                   "{}: id {} belongs to more than one token", where_, id);
      result_.pieces[index] = std::move(bytes);
    }
    for (std::size_t b = 0; b < 256; ++b) {
      ENGINE_CHECK(result_.byte_ids[b] >= 0, Errc::corrupt_data,
                   "{}: byte {} has no token: expected one for each of the 256", where_, b);
    }
    const auto end = ids_.find(kEndOfText);
    if (end != ids_.end()) result_.end_of_text = end->second.id;
    return std::move(result_);
  }

 private:
  struct Entry {
    std::int32_t id;
    bool literal;
  };

  std::string where_;
  std::unordered_map<std::string, Entry> ids_;
  std::vector<std::pair<std::int32_t, std::string>> pieces_;
  std::set<std::pair<std::int32_t, std::int32_t>> pairs_;
  Gpt2Vocabulary result_;
};

Json parse_object(const TokenizerFile& file, const std::string& where) {
  std::optional<Json> value = Json::try_parse(file.contents, where);
  ENGINE_CHECK(value, Errc::corrupt_data, "{}: not valid JSON", where);
  ENGINE_CHECK(value->is_object(), Errc::corrupt_data, "{}: expected a JSON object, got {}", where,
               value->text());
  return *std::move(value);
}

void add_merge_lines(Parser& parser, std::string_view text, const std::string& where) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    // Only the first line can be the version: "# #" is a merge.
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    ENGINE_CHECK(space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
                     line.find(' ', space + 1) == std::string_view::npos,
                 Errc::corrupt_data, "{}: line {}: expected two tokens with a space between", where,
                 number);
    parser.add_merge(std::string(line.substr(0, space)), std::string(line.substr(space + 1)),
                     number);
  }
}

/// Null, false, "" and 0: the key is there, but sets nothing.
bool sets_nothing(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::null:
      return true;
    case Json::Kind::boolean:
      return !value.boolean();
    case Json::Kind::string:
      return value.string().empty();
    case Json::Kind::integer:
    case Json::Kind::number:
      return value.number() == 0;
    default:
      return false;
  }
}

/// Refuses what would make other ids than plain GPT-2: a key that is set to something else.
void expect_plain(const Json& object, std::string_view key, const std::string& where) {
  const auto found = object.find(key);
  ENGINE_CHECK(!found || sets_nothing(*found), Errc::invalid_argument,
               "{}: {} = {} is not supported", where, key, found->text());
}

/// A member that must be there, even if it is null.
Json member(const Json& object, std::string_view key, const std::string& where) {
  ENGINE_CHECK(object.is_object(), Errc::corrupt_data, "{}: expected an object with {}, got {}",
               where, key, object.text());
  std::optional<Json> found = object.find_or_null(key);
  ENGINE_CHECK(found, Errc::corrupt_data, "{}: {} is missing", where, key);
  return *std::move(found);
}

bool is_string(const Json& value, std::string_view wanted) {
  return value.kind() == Json::Kind::string && value.string() == wanted;
}

/// Whether the member `key` is `wanted`; if it is missing, `fallback` counts.
bool is_boolean(const Json& object, std::string_view key, bool fallback, bool wanted) {
  const auto found = object.find_or_null(key);
  if (!found) return fallback == wanted;
  return found->kind() == Json::Kind::boolean && found->boolean() == wanted;
}

void check_hugging_face(const Json& root, const std::string& where) {
  const Json model = member(root, "model", where);
  ENGINE_CHECK(model.is_object(), Errc::corrupt_data, "{}: model: expected an object", where);
  const auto type = model.find_or_null("type");
  ENGINE_CHECK(!type || is_string(*type, "BPE"), Errc::invalid_argument,
               "{}: model {} is not supported: expected BPE", where, type->text());
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                          "byte_fallback", "ignore_merges"}) {
    expect_plain(model, key, where);
  }
  expect_plain(root, "normalizer", where);
  const Json splitter = member(root, "pre_tokenizer", where);
  const auto kind = splitter.is_object() ? splitter.find("type") : splitter;
  ENGINE_CHECK(splitter.is_object() && kind && is_string(*kind, "ByteLevel"),
               Errc::invalid_argument, "{}: pre_tokenizer {} is not supported: expected ByteLevel",
               where, kind ? kind->text() : "null");
  ENGINE_CHECK(is_boolean(splitter, "add_prefix_space", true, false) &&
                   is_boolean(splitter, "use_regex", true, true),
               Errc::invalid_argument,
               "{}: pre_tokenizer ByteLevel: expected add_prefix_space = false and use_regex = "
               "true, as GPT-2 has them",
               where);
}

void add_added_tokens(Parser& parser, const Json& list, const std::string& where) {
  ENGINE_CHECK(list.kind() == Json::Kind::array, Errc::corrupt_data,
               "{}: added_tokens: expected an array", where);
  for (const Json& token : list.elements()) {
    const Json content = member(token, "content", where);
    ENGINE_CHECK(content.kind() == Json::Kind::string, Errc::corrupt_data,
                 "{}: added token {}: expected a string", where, content.text());
    ENGINE_CHECK(is_boolean(token, "special", false, true), Errc::invalid_argument,
                 "{}: added token {} is not special: such tokens are not supported", where,
                 content.text());
    parser.add_token(content.string(), member(token, "id", where), true);
  }
}

void add_merges(Parser& parser, const Json& list, const std::string& where) {
  ENGINE_CHECK(list.kind() == Json::Kind::array, Errc::corrupt_data,
               "{}: merges: expected an array", where);
  std::size_t number = 0;
  for (const Json& merge : list.elements()) {
    ++number;
    if (merge.kind() == Json::Kind::array) {
      const std::vector<Json> pair = merge.elements();
      const bool strings = pair.size() == 2 && pair[0].kind() == Json::Kind::string &&
                           pair[1].kind() == Json::Kind::string;
      ENGINE_CHECK(strings, Errc::corrupt_data, "{}: merge {}: expected two tokens, got {}", where,
                   number, merge.text());
      parser.add_merge(pair[0].string(), pair[1].string(), number);
      continue;
    }
    const std::string line = merge.kind() == Json::Kind::string ? merge.string() : std::string();
    const std::size_t space = line.find(' ');
    ENGINE_CHECK(space != std::string::npos, Errc::corrupt_data,
                 "{}: merge {}: expected two tokens, got {}", where, number, merge.text());
    parser.add_merge(line.substr(0, space), line.substr(space + 1), number);
  }
}

void add_hugging_face(Parser& parser, const Json& root, const std::string& where) {
  check_hugging_face(root, where);
  const Json model = root.at("model");
  const Json vocab = member(model, "vocab", where);
  ENGINE_CHECK(vocab.is_object(), Errc::corrupt_data, "{}: vocab: expected an object", where);
  vocab.for_each_member(
      [&](const std::string& token, const Json& id) { parser.add_token(token, id, false); });
  if (const auto added = root.find("added_tokens")) add_added_tokens(parser, *added, where);
  add_merges(parser, member(model, "merges", where), where);
}

}  // namespace

Gpt2Vocabulary parse_gpt2_vocabulary(std::span<const TokenizerFile> files,
                                     const std::string& where) {
  ENGINE_ASSERT(files.size() == 1 || files.size() == 2, "{} vocabulary files", files.size());
  const std::string first = where + "/" + files[0].name;
  const Json root = parse_object(files[0], first);
  Parser parser(files.size() == 1 ? first : where);
  if (files.size() == 1) {
    add_hugging_face(parser, root, first);
  } else {
    root.for_each_member(
        [&](const std::string& token, const Json& id) { parser.add_token(token, id, false); });
    add_merge_lines(parser, files[1].contents, where + "/" + files[1].name);
  }
  return parser.finish();
}

}  // namespace engine::data::detail

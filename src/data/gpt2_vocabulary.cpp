#include "src/data/gpt2_vocabulary.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <utility>

#include "engine/core/error.hpp"

namespace engine::data::detail {
namespace {

using nlohmann::json;

constexpr const char* kEndOfText = "<|endoftext|>";

/// Printable form of text that may hold anything, for one-line errors.
std::string printable(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

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
  void add_token(const std::string& token, const json& id, bool literal) {
    ENGINE_CHECK(id.is_number_integer(), Errc::corrupt_data,
                 "{}: token {}: expected an integer id, got {}", where_, printable(token),
                 printable(id));
    const auto value = id.is_number_unsigned() && id.get<std::uint64_t>() > INT32_MAX
                           ? std::int64_t{INT32_MAX}
                           : id.get<std::int64_t>();
    ENGINE_CHECK(value >= 0 && value < INT32_MAX, Errc::corrupt_data,
                 "{}: token {}: expected an id in [0, 2^31), got {}", where_, printable(token),
                 printable(id));
    const auto number = static_cast<std::int32_t>(value);
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

json parse_object(const TokenizerFile& file, const std::string& where) {
  json value = json::parse(file.contents, nullptr, false);
  ENGINE_CHECK(!value.is_discarded(), Errc::corrupt_data, "{}: not valid JSON", where);
  ENGINE_CHECK(value.is_object(), Errc::corrupt_data, "{}: expected a JSON object, got {}", where,
               value.type_name());
  return value;
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

/// Refuses what would make other ids than plain GPT-2: a key that is set to something else.
void expect_plain(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  const bool plain =
      found == object.end() || found->is_null() || *found == false || *found == "" || *found == 0;
  ENGINE_CHECK(plain, Errc::invalid_argument, "{}: {} = {} is not supported", where, key,
               printable(found == object.end() ? json() : *found));
}

const json& member(const json& object, const char* key, const std::string& where) {
  ENGINE_CHECK(object.is_object(), Errc::corrupt_data, "{}: expected an object with {}, got {}",
               where, key, printable(object));
  const auto found = object.find(key);
  ENGINE_CHECK(found != object.end(), Errc::corrupt_data, "{}: {} is missing", where, key);
  return *found;
}

void check_hugging_face(const json& root, const std::string& where) {
  const json& model = member(root, "model", where);
  ENGINE_CHECK(model.is_object(), Errc::corrupt_data, "{}: model: expected an object", where);
  const json type = model.value("type", json("BPE"));
  ENGINE_CHECK(type == "BPE", Errc::invalid_argument, "{}: model {} is not supported: expected BPE",
               where, printable(type));
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                          "byte_fallback", "ignore_merges"}) {
    expect_plain(model, key, where);
  }
  expect_plain(root, "normalizer", where);
  const json& splitter = member(root, "pre_tokenizer", where);
  const json kind = splitter.is_object() ? splitter.value("type", json()) : splitter;
  ENGINE_CHECK(kind == "ByteLevel", Errc::invalid_argument,
               "{}: pre_tokenizer {} is not supported: expected ByteLevel", where, printable(kind));
  ENGINE_CHECK(splitter.value("add_prefix_space", json(true)) == false &&
                   splitter.value("use_regex", json(true)) == true,
               Errc::invalid_argument,
               "{}: pre_tokenizer ByteLevel: expected add_prefix_space = false and use_regex = "
               "true, as GPT-2 has them",
               where);
}

void add_hugging_face(Parser& parser, const json& root, const std::string& where) {
  check_hugging_face(root, where);
  const json& vocab = member(root["model"], "vocab", where);
  ENGINE_CHECK(vocab.is_object(), Errc::corrupt_data, "{}: vocab: expected an object", where);
  for (const auto& [token, id] : vocab.items()) parser.add_token(token, id, false);
  const json added = root.value("added_tokens", json::array());
  ENGINE_CHECK(added.is_array() || added.is_null(), Errc::corrupt_data,
               "{}: added_tokens: expected an array", where);
  for (const json& token : added) {
    const json& content = member(token, "content", where);
    ENGINE_CHECK(content.is_string(), Errc::corrupt_data, "{}: added token {}: expected a string",
                 where, printable(content));
    ENGINE_CHECK(token.value("special", json(false)) == true, Errc::invalid_argument,
                 "{}: added token {} is not special: such tokens are not supported", where,
                 printable(content));
    parser.add_token(content.get<std::string>(), member(token, "id", where), true);
  }
  const json& merges = member(root["model"], "merges", where);
  ENGINE_CHECK(merges.is_array(), Errc::corrupt_data, "{}: merges: expected an array", where);
  std::size_t number = 0;
  for (const json& merge : merges) {
    ++number;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      parser.add_merge(merge[0].get<std::string>(), merge[1].get<std::string>(), number);
      continue;
    }
    const std::string line = merge.is_string() ? merge.get<std::string>() : std::string();
    const std::size_t space = line.find(' ');
    ENGINE_CHECK(space != std::string::npos, Errc::corrupt_data,
                 "{}: merge {}: expected two tokens, got {}", where, number, printable(merge));
    parser.add_merge(line.substr(0, space), line.substr(space + 1), number);
  }
}

}  // namespace

Gpt2Vocabulary parse_gpt2_vocabulary(std::span<const TokenizerFile> files,
                                     const std::string& where) {
  ENGINE_ASSERT(files.size() == 1 || files.size() == 2, "{} vocabulary files", files.size());
  const std::string first = where + "/" + files[0].name;
  const json root = parse_object(files[0], first);
  Parser parser(files.size() == 1 ? first : where);
  if (files.size() == 1) {
    add_hugging_face(parser, root, first);
  } else {
    for (const auto& [token, id] : root.items()) parser.add_token(token, id, false);
    add_merge_lines(parser, files[1].contents, where + "/" + files[1].name);
  }
  return parser.finish();
}

}  // namespace engine::data::detail

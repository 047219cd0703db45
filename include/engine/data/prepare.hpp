#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace engine::data {

/// Where one document of a text file ends and the next begins. A .jsonl file has one a line.
enum class DocumentSplit : std::uint8_t {
  file,   ///< a file is a document
  line,   ///< a line that is not empty is a document
  blank,  ///< documents lie between blank lines
};

/// Throws: Errc::invalid_argument for a name other than "file", "line" and "blank".
DocumentSplit parse_document_split(std::string_view text);

/// What `prepare` reads and how.
struct PrepareOptions {
  std::string tokenizer = "bytes";                 ///< as for `make_tokenizer`
  std::filesystem::path out = {};                  ///< made if needed
  std::vector<std::filesystem::path> inputs = {};  ///< text, or .jsonl with the text under "text"
  double val_fraction = 0.05;                      ///< in [0, 1); 0 writes no val.bin
  DocumentSplit split = DocumentSplit::file;
  bool append_eot = false;  ///< end every document with the end-of-text id
  bool force = false;       ///< replace an existing train.bin
  /// Called now and then with the bytes of input done and their total, if set.
  std::function<void(std::int64_t, std::int64_t)> progress = {};
};

/// Counts of what `prepare` wrote.
struct PrepareResult {
  std::int64_t documents = 0;      ///< empty ones are dropped
  std::int64_t val_documents = 0;  ///< 0 if documents were cut instead
  std::int64_t train_tokens = 0;
  std::int64_t val_tokens = 0;
  std::int32_t vocab_size = 0;
};

/// Writes `train.bin`, `val.bin`, `meta.json` and `tokenizer/` into `options.out`. Tokens are
/// raw_u16, or raw_u32 if the vocabulary is above 65,536.
///
/// Validation takes whole documents if the fraction of their number is at least one: that many,
/// spread evenly. With fewer documents each one is cut, and its last fraction (in bytes, moved back
/// to the start of a character) goes to validation; both parts are encoded apart.
///
/// Without `append_eot`, line ends and blank lines between documents stay in the text; with it,
/// the end-of-text id takes their place.
///
/// Inputs are mapped and encoded a document at a time. Files appear under their names whole and
/// synced, train.bin last; a failure leaves none of them half-written.
/// Throws: Errc::invalid_argument; Errc::corrupt_data naming file and line; Errc::io.
PrepareResult prepare(const PrepareOptions& options);

}  // namespace engine::data

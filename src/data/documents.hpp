#pragma once
#include <string_view>

#include "engine/core/function_ref.hpp"
#include "engine/core/mapped_file.hpp"
#include "engine/data/prepare.hpp"

namespace engine::data::detail {

/// A document: its text, and its text with what separates it from the next.
struct Document {
  std::string_view text;
  std::string_view whole;
  std::size_t end_bytes;  ///< where it ends in its file
};

/// Calls `take` with every document of `file` that is not empty. The views last for the call.
/// Throws: Errc::corrupt_data naming file and line for a line of .jsonl that is not an object with
/// a string "text".
void for_each_document(const MappedFile& file, DocumentSplit split,
                       FunctionRef<void(const Document&)> take);

}  // namespace engine::data::detail

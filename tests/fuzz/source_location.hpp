#pragma once
// std::source_location for clang before 15, which lacks the builtin that libstdc++ makes it from.
// Included ahead of everything else, in the fuzz build alone.
#include <version>
#if defined(__clang__) && __clang_major__ < 15 && !defined(__cpp_lib_source_location)
#include <cstdint>

namespace std {  // NOLINT(cert-dcl58-cpp): stands in for the standard's own

struct source_location {
  static constexpr source_location current(const char* file = __builtin_FILE(),
                                           const char* function = __builtin_FUNCTION(),
                                           uint_least32_t line = __builtin_LINE()) noexcept {
    source_location here;
    here.file_ = file;
    here.function_ = function;
    here.line_ = line;
    return here;
  }
  constexpr const char* file_name() const noexcept { return file_; }
  constexpr const char* function_name() const noexcept { return function_; }
  constexpr uint_least32_t line() const noexcept { return line_; }
  constexpr uint_least32_t column() const noexcept { return 0; }

 private:
  const char* file_ = "";
  const char* function_ = "";
  uint_least32_t line_ = 0;
};

}  // namespace std
#endif

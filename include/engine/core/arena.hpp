#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

namespace engine {

/// What a block of memory is used for; every allocation names one.
enum class Category : std::uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  communication,
  workspace,
};
inline constexpr int kCategories = 6;

constexpr std::string_view name(Category category) noexcept {
  constexpr std::array<std::string_view, kCategories> names = {
      "parameters", "gradients", "optimizer", "activations", "communication", "workspace"};
  return names[static_cast<std::size_t>(category)];
}

/// Measured memory of an arena, in bytes.
struct MemoryStats {
  struct Usage {
    std::int64_t now_bytes = 0;
    std::int64_t peak_bytes = 0;
  };
  std::array<Usage, kCategories> categories;
  Usage total;                       ///< all categories together; its peak is one moment's sum
  std::int64_t committed_bytes = 0;  ///< taken from the system so far; never falls
};

/// Counts bytes by category; thread-safe.
class MemoryMeter {
 public:
  void add(Category category, std::int64_t bytes);
  void set_committed(std::int64_t bytes);
  MemoryStats stats() const;
  /// Starts new peaks at what is in use now.
  void reset_peaks();

 private:
  mutable std::mutex mutex_;
  MemoryStats stats_;
};

/// A rank's memory: one address range, backed by huge pages, touched when first committed and kept.
/// Blocks are 64-byte aligned, found best-fit, and merge when freed, so a program that repeats its
/// requests takes nothing more from the system. Thread-safe. In address-sanitized builds free
/// blocks are poisoned.
class Arena {
 public:
  static constexpr std::size_t kAlignment = 64;

  /// Reserves addresses for `capacity_bytes` (0: twice the physical memory); commits nothing yet.
  explicit Arena(std::size_t capacity_bytes = 0);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Uninitialised block. Throws Errc::out_of_memory, naming the category and what is in use.
  std::byte* allocate(std::size_t bytes, Category category);
  /// Gives a block back; `bytes` and `category` are those of its allocation.
  void deallocate(std::byte* block, std::size_t bytes, Category category) noexcept;

  MemoryMeter& meter() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine

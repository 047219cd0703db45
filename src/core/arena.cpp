#include "engine/core/arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "engine/core/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace engine {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kGrowth = std::size_t{32} << 20;

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::size_t physical_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

void poison([[maybe_unused]] const std::byte* block, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(block, bytes);
#endif
}

void unpoison([[maybe_unused]] const std::byte* block, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(block, bytes);
#endif
}

/// Free blocks by address and by size. Offsets are relative to the arena's base.
class FreeList {
 public:
  void insert(std::size_t offset, std::size_t bytes) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = erase(next);
    }
    if (next != by_offset_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        offset = previous->first;
        bytes += previous->second;
        erase(previous);
      }
    }
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }

  /// Takes `bytes` out of the smallest block that holds them; the lowest address among equals.
  bool take(std::size_t bytes, std::size_t& offset) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit == by_size_.end()) return false;
    const auto [size, at] = *fit;
    erase(by_offset_.find(at));
    if (size > bytes) {
      by_offset_.emplace(at + bytes, size - bytes);
      by_size_.emplace(size - bytes, at + bytes);
    }
    offset = at;
    return true;
  }

  /// Size of the free block that ends at `end`, or 0.
  std::size_t tail(std::size_t end) const {
    if (by_offset_.empty()) return 0;
    const auto& [offset, bytes] = *by_offset_.rbegin();
    return offset + bytes == end ? bytes : 0;
  }

 private:
  std::map<std::size_t, std::size_t>::iterator erase(
      std::map<std::size_t, std::size_t>::iterator it) {
    by_size_.erase({it->second, it->first});
    return by_offset_.erase(it);
  }

  std::map<std::size_t, std::size_t> by_offset_;
  std::set<std::pair<std::size_t, std::size_t>> by_size_;
};

}  // namespace

void MemoryMeter::add(Category category, std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  for (MemoryStats::Usage* usage :
       {&stats_.categories[static_cast<std::size_t>(category)], &stats_.total}) {
    usage->now_bytes += bytes;
    usage->peak_bytes = std::max(usage->peak_bytes, usage->now_bytes);
  }
}

void MemoryMeter::set_committed(std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  stats_.committed_bytes = bytes;
}

MemoryStats MemoryMeter::stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

void MemoryMeter::reset_peaks() {
  const std::scoped_lock lock(mutex_);
  for (MemoryStats::Usage& usage : stats_.categories) usage.peak_bytes = usage.now_bytes;
  stats_.total.peak_bytes = stats_.total.now_bytes;
}

struct Arena::State {
  mutable std::mutex mutex;
  std::byte* mapping = nullptr;  // as returned by mmap
  std::size_t mapping_bytes = 0;
  std::byte* base = nullptr;  // first huge-page boundary inside
  std::size_t capacity = 0;
  std::size_t committed = 0;
  FreeList free;
  MemoryMeter meter;

  bool commit(std::size_t bytes) {
    const std::size_t grow = round_up(std::max(bytes, kGrowth), kHugePage);
    const std::size_t step = std::min(grow, capacity - committed);
    if (step < bytes) return false;
    std::byte* begin = base + committed;
    if (mprotect(begin, step, PROT_READ | PROT_WRITE) != 0) return false;
    madvise(begin, step, MADV_HUGEPAGE);
    for (std::size_t at = 0; at < step; at += 4096) begin[at] = std::byte{0};
    poison(begin, step);
    free.insert(committed, step);
    committed += step;
    meter.set_committed(static_cast<std::int64_t>(committed));
    return true;
  }
};

Arena::Arena(std::size_t capacity_bytes) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.capacity = round_up(capacity_bytes != 0 ? capacity_bytes : 2 * physical_bytes(), kHugePage);
  for (;; s.capacity = round_up(s.capacity / 2, kHugePage)) {
    s.mapping_bytes = s.capacity + kHugePage;
    void* p = mmap(nullptr, s.mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p != MAP_FAILED) {
      s.mapping = static_cast<std::byte*>(p);
      break;
    }
    ENGINE_CHECK(capacity_bytes == 0 && s.capacity > kHugePage, Errc::out_of_memory,
                 "cannot reserve {} bytes of addresses for the arena: lower the memory needed or "
                 "raise the address-space limit (ulimit -v)",
                 s.mapping_bytes);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(s.mapping);
  s.base = s.mapping + (round_up(address, kHugePage) - address);
}

Arena::~Arena() {
  unpoison(state_->base, state_->committed);  // the addresses may serve somebody else next
  munmap(state_->mapping, state_->mapping_bytes);
}

std::byte* Arena::allocate(std::size_t bytes, Category category) {
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  State& s = *state_;
  const std::scoped_lock lock(s.mutex);
  std::size_t offset = 0;
  if (!s.free.take(size, offset)) {
    const bool grown = s.commit(size - s.free.tail(s.committed)) && s.free.take(size, offset);
    ENGINE_CHECK(grown, Errc::out_of_memory,
                 "out of memory: {} bytes for {} asked while {} of {} bytes are in use; use a "
                 "smaller micro-batch, recomputation or more ranks",
                 bytes, name(category), s.meter.stats().total.now_bytes, s.capacity);
  }
  s.meter.add(category, static_cast<std::int64_t>(size));
  unpoison(s.base + offset, bytes);
  return s.base + offset;
}

void Arena::deallocate(std::byte* block, std::size_t bytes, Category category) noexcept {
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  State& s = *state_;
  const std::scoped_lock lock(s.mutex);
  poison(block, size);
  s.free.insert(static_cast<std::size_t>(block - s.base), size);
  s.meter.add(category, -static_cast<std::int64_t>(size));
}

MemoryMeter& Arena::meter() noexcept { return state_->meter; }

}  // namespace engine

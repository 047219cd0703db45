#pragma once
// Collectives between the ranks of a group.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/lane.hpp"
#include "engine/core/tensor.hpp"

namespace engine::comm {

enum class ReduceOp : std::uint8_t { sum, max, min };

/// A submitted collective: once complete, outputs are readable and inputs are free again.
using Work = Event;

/// The members of a group, as world ranks; all members name the same list in the same order.
struct Group {
  std::string name;          ///< for example "data" or "shard 0": identifies it to all members
  std::vector<int> members;  ///< world ranks; the position in the list is the rank in the group
  int rank = 0;              ///< of this process or thread, in the group

  int size() const noexcept { return static_cast<int>(members.size()); }
};

/// How one group moves bytes. Calls block (or, on a device, enqueue) and come in one order, the
/// same on every member, because a Communicator makes them on its lane. Arguments were checked:
/// contiguous, defined, fitting. Tensors on `meta` take part without moving anything.
/// Errors: Errc::timeout or Errc::peer_lost naming group, operation, sequence number and the rank
/// that is late or gone; Errc::internal when members call different operations.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual void all_reduce(const Tensor& data, ReduceOp op) = 0;
  virtual void all_gather(const Tensor& input, const Tensor& output) = 0;
  virtual void reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op) = 0;
  virtual void all_to_all(const Tensor& input, const Tensor& output) = 0;
  virtual void broadcast(const Tensor& data, int root) = 0;
  virtual void send(const Tensor& data, int to) = 0;
  virtual void recv(const Tensor& data, int from) = 0;
  virtual void barrier() = 0;
};

class World;

/// Collectives of one group on one lane. Every member must make the same calls in the same order;
/// send and recv pair up in order per direction. Reductions add in the order of group ranks,
/// narrow floats in f32 with one rounding at the end, so results repeat bitwise.
///
/// Bytes on the wire are what a rank sends: with N bytes of `data`, `input` of reduce_scatter or
/// `output` of all_gather on P ranks, (P-1)/P N for all_gather, reduce_scatter and all_to_all,
/// 2 (P-1)/P N for all_reduce. docs/collectives.md has steps and bytes of each algorithm.
class Communicator {
 public:
  /// Made by World::group. `lane` must outlive it.
  Communicator(World& world, Group group, Lane& lane, std::unique_ptr<Transport> transport);
  /// Waits for submitted work. When an exception passes through and work is under way, aborts the
  /// world first: peers, told of the exception only later, may never come.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const Group& group() const noexcept { return group_; }
  int rank() const noexcept { return group_.rank; }
  int size() const noexcept { return group_.size(); }
  Lane& lane() const noexcept { return *lane_; }

  // Collective: every member of the group. Async: the tensors are kept until the work is complete.
  // Throws Errc::internal at once for tensors that do not fit; the work throws as Transport does.

  /// data [n] of every member becomes the reduction. Types: f32, bf16, f16, i32, i64.
  Work all_reduce(const Tensor& data, ReduceOp op = ReduceOp::sum);
  /// input [n], output [P n]: all inputs in rank order. `input` may be the own part of `output`.
  Work all_gather(const Tensor& input, const Tensor& output);
  /// input [P n], output [n]: the reduction of this rank's part. `output` may be the own part of
  /// `input`; `input` is otherwise unchanged. Types as all_reduce.
  Work reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op = ReduceOp::sum);
  /// input and output [P n], not overlapping: part p goes to rank p and lands in part `rank`.
  Work all_to_all(const Tensor& input, const Tensor& output);
  /// data [n] of `root` replaces every member's.
  Work broadcast(const Tensor& data, int root);
  /// Matches the receiver's next recv from this rank.
  Work send(const Tensor& data, int to);
  Work recv(const Tensor& data, int from);
  /// Complete when every member has entered it.
  Work barrier();

  /// A communicator among the members that give the same `color`, ordered by `key`, then rank, on
  /// `lane`. Collective; blocks.
  std::unique_ptr<Communicator> split(int color, int key, Lane& lane);

  /// Bytes this rank has sent on the wire so far.
  std::int64_t sent_bytes() const noexcept { return sent_bytes_.load(std::memory_order_relaxed); }

 private:
  Work submit(std::int64_t wire_bytes, std::function<void(Transport&)> call);

  World* world_;
  Group group_;
  Lane* lane_;
  std::unique_ptr<Transport> transport_;
  std::atomic<std::int64_t> sent_bytes_{0};
  int splits_ = 0;
  int exceptions_;  // passing through when it was made
};

}  // namespace engine::comm

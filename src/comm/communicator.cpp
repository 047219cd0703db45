#include "engine/comm/communicator.hpp"

#include <algorithm>
#include <exception>

#include "engine/comm/exchange.hpp"
#include "engine/comm/world.hpp"

namespace engine::comm {
namespace {

bool reducible(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 ||
         dtype == DType::i32 || dtype == DType::i64;
}

void check_tensor(const Group& group, const char* operation, const Tensor& t) {
  ENGINE_ASSERT(static_cast<bool>(t) && t.contiguous(),
                "{} in group {}: expected a contiguous tensor", operation, group.name);
}

/// `whole` holds one `part` for every member.
void check_parts(const Group& group, const char* operation, const Tensor& part,
                 const Tensor& whole) {
  check_tensor(group, operation, part);
  check_tensor(group, operation, whole);
  ENGINE_ASSERT(part.dtype() == whole.dtype() && part.numel() * group.size() == whole.numel(),
                "{} in group {} of {}: {} x {} does not fit {} x {}", operation, group.name,
                group.size(), name(part.dtype()), part.numel(), name(whole.dtype()), whole.numel());
}

void check_reducible(const Group& group, const char* operation, DType dtype) {
  ENGINE_ASSERT(reducible(dtype), "{} in group {}: {} cannot be reduced", operation, group.name,
                name(dtype));
}

void check_peer(const Group& group, const char* operation, int peer) {
  ENGINE_ASSERT(peer >= 0 && peer < group.size(), "{} in group {} of {}: no rank {}", operation,
                group.name, group.size(), peer);
}

}  // namespace

Communicator::Communicator(World& world, Group group, Lane& lane,
                           std::unique_ptr<Transport> transport)
    : world_(&world),
      group_(std::move(group)),
      lane_(&lane),
      transport_(std::move(transport)),
      exceptions_(std::uncaught_exceptions()) {}

Communicator::~Communicator() {
  if (std::uncaught_exceptions() > exceptions_ && !lane_->idle()) {
    world_->abort("it threw an exception while collectives were under way");
  }
  try {
    lane_->drain();  // submitted work refers to the transport
  } catch (...) {    // told to whoever waited for it
  }
}

Work Communicator::submit(std::int64_t wire_bytes, std::function<void(Transport&)> call) {
  return lane_->submit([this, wire_bytes, call = std::move(call)] {
    call(*transport_);
    sent_bytes_.fetch_add(wire_bytes, std::memory_order_relaxed);
  });
}

Work Communicator::all_reduce(const Tensor& data, ReduceOp op) {
  check_tensor(group_, "all_reduce", data);
  check_reducible(group_, "all_reduce", data.dtype());
  const auto bytes = static_cast<std::int64_t>(data.bytes());
  return submit(2 * bytes * (size() - 1) / size(),
                [data, op](Transport& t) { t.all_reduce(data, op); });
}

Work Communicator::all_gather(const Tensor& input, const Tensor& output) {
  check_parts(group_, "all_gather", input, output);
  return submit(static_cast<std::int64_t>(input.bytes()) * (size() - 1),
                [input, output](Transport& t) { t.all_gather(input, output); });
}

Work Communicator::reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op) {
  check_parts(group_, "reduce_scatter", output, input);
  check_reducible(group_, "reduce_scatter", input.dtype());
  return submit(static_cast<std::int64_t>(output.bytes()) * (size() - 1),
                [input, output, op](Transport& t) { t.reduce_scatter(input, output, op); });
}

Work Communicator::all_to_all(const Tensor& input, const Tensor& output) {
  check_tensor(group_, "all_to_all", input);
  check_tensor(group_, "all_to_all", output);
  ENGINE_ASSERT(input.dtype() == output.dtype() && input.numel() == output.numel() &&
                    input.numel() % size() == 0,
                "all_to_all in group {} of {}: {} elements to {}", group_.name, size(),
                input.numel(), output.numel());
  return submit(static_cast<std::int64_t>(input.bytes()) / size() * (size() - 1),
                [input, output](Transport& t) { t.all_to_all(input, output); });
}

Work Communicator::broadcast(const Tensor& data, int root) {
  check_tensor(group_, "broadcast", data);
  check_peer(group_, "broadcast", root);
  const std::int64_t bytes = rank() == root ? static_cast<std::int64_t>(data.bytes()) : 0;
  return submit(bytes * (size() - 1), [data, root](Transport& t) { t.broadcast(data, root); });
}

Work Communicator::send(const Tensor& data, int to) {
  check_tensor(group_, "send", data);
  check_peer(group_, "send", to);
  ENGINE_ASSERT(to != rank(), "send in group {}: rank {} to itself", group_.name, to);
  return submit(static_cast<std::int64_t>(data.bytes()),
                [data, to](Transport& t) { t.send(data, to); });
}

Work Communicator::recv(const Tensor& data, int from) {
  check_tensor(group_, "recv", data);
  check_peer(group_, "recv", from);
  ENGINE_ASSERT(from != rank(), "recv in group {}: rank {} from itself", group_.name, from);
  return submit(0, [data, from](Transport& t) { t.recv(data, from); });
}

Work Communicator::barrier() {
  return submit(0, [](Transport& t) { t.barrier(); });
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, Lane& lane) {
  struct Place {
    int color, key, world_rank;
  };
  const Place mine = {color, key, group_.members[static_cast<std::size_t>(rank())]};
  std::vector<Place> same;
  for (const Place& place : exchange(*this, mine)) {
    if (place.color == color) same.push_back(place);
  }
  std::stable_sort(same.begin(), same.end(),
                   [](const Place& a, const Place& b) { return a.key < b.key; });
  std::vector<int> members;
  for (const Place& place : same) members.push_back(place.world_rank);
  return world_->group(fmt::format("{}/split {} color {}", group_.name, splits_++, color), members,
                       lane);
}

}  // namespace engine::comm

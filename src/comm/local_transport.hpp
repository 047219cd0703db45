#pragma once
#include <memory>

#include "engine/comm/communicator.hpp"

namespace engine::comm::detail {

/// A group whose other members, if any, are imagined to hold what this rank holds. On `meta`
/// tensors nothing moves.
std::unique_ptr<Transport> make_local_transport(const Group& group);

}  // namespace engine::comm::detail

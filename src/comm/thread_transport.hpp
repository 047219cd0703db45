#pragma once
#include <memory>

#include "engine/comm/communicator.hpp"
#include "futex.hpp"
#include "meeting.hpp"

namespace engine::comm::detail {

/// What the link emulation asks a transport that can tell.
class Observed {
 public:
  virtual ~Observed() = default;
  /// When the last member entered the last collective.
  virtual Clock::time_point all_entered() const noexcept = 0;
  /// Throws if the world was aborted.
  virtual void check_world() const = 0;
};

/// A transport between threads; the members share `meeting`.
std::unique_ptr<Transport> make_thread_transport(const Group& group,
                                                 std::shared_ptr<Meeting> meeting);

}  // namespace engine::comm::detail

// The in-process backend.
#include "engine/comm/world.hpp"
#include "tests/comm/conformance.hpp"
#include "tests/comm/conformance_failures.hpp"

namespace engine::comm::test {
namespace {

struct ThreadBackend {
  static void run(int ranks, const Timeouts& timeouts, const std::function<void(World&)>& body) {
    spawn_ranks(ranks, timeouts, body);
  }
  static std::vector<int> sizes() { return {1, 2, 3, 4, 5, 6, 7, 8}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Thread, CommOperations, ThreadBackend);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, CommGroups, ThreadBackend);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, CommFailures, ThreadBackend);

}  // namespace
}  // namespace engine::comm::test

#pragma once
// How every backend fails: see conformance.hpp for what a backend is.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/comm/conformance.hpp"

namespace engine::comm::test {

inline void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

template <class Backend>
class CommFailures : public testing::Test {};
TYPED_TEST_SUITE_P(CommFailures);

TYPED_TEST_P(CommFailures, TimeoutNamesTheRankThatIsLate) {
  TypeParam::run(4, {.collective_s = 0.4, .startup_s = 10}, [&](World& world) {
    Lane lane;
    const auto comm = everyone(world, lane, "data");
    comm->all_reduce(values<float>(world.rank(), 100)).wait();
    comm->barrier().wait();
    if (world.rank() == 2) {
      sleep_ms(900);
      return;
    }
    expect_error(Errc::timeout, {"all_gather", "data", "rank 2"},
                 [&] { comm->all_gather(values<float>(0, 100), empty<float>(400)).wait(); });
    sleep_ms(500);  // nobody leaves before all have timed out
  });
}

TYPED_TEST_P(CommFailures, TimeoutOfAReceiveNamesTheSender) {
  TypeParam::run(3, {.collective_s = 0.3, .startup_s = 10}, [&](World& world) {
    Lane lane;
    const auto comm = everyone(world, lane, "pipe");
    comm->barrier().wait();
    if (world.rank() == 0) {
      expect_error(Errc::timeout, {"pipe", "rank 1"},
                   [&] { comm->recv(empty<float>(5), 1).wait(); });
    } else {
      sleep_ms(700);
    }
  });
}

TYPED_TEST_P(CommFailures, DifferentCallsThrowOnEveryMember) {
  const auto disagree = [](const std::vector<std::string>& parts, const auto& call) {
    TypeParam::run(3, {.collective_s = 20, .startup_s = 20}, [&](World& world) {
      Lane lane;
      const auto comm = everyone(world, lane, "mixed");
      comm->barrier().wait();
      expect_error(Errc::internal, parts, [&] { call(*comm, world.rank() == 1); });
      sleep_ms(100);
    });
  };
  disagree({"mixed", "all_reduce", "broadcast"}, [](Communicator& comm, bool other) {
    if (other) {
      comm.broadcast(values<float>(0, 64), 0).wait();
    } else {
      comm.all_reduce(values<float>(0, 64)).wait();
    }
  });
  disagree({"mixed", "all_reduce", "64", "65"}, [](Communicator& comm, bool other) {
    comm.all_reduce(values<float>(0, other ? 65 : 64)).wait();
  });
  disagree({"mixed", "all_reduce", "f32", "i32"}, [](Communicator& comm, bool other) {
    comm.all_reduce(other ? values<std::int32_t>(0, 64) : values<float>(0, 64)).wait();
  });
  disagree({"mixed", "broadcast"}, [](Communicator& comm, bool other) {
    comm.broadcast(values<float>(0, 64), other ? 1 : 0).wait();
  });
  disagree({"mixed", "all_reduce"}, [](Communicator& comm, bool other) {
    comm.all_reduce(values<float>(0, 64), other ? ReduceOp::max : ReduceOp::sum).wait();
  });
}

TYPED_TEST_P(CommFailures, AbortEndsAllWaitsWithinASecond) {
  const std::string reason = "no space left on device";
  TypeParam::run(4, patient(), [&](World& world) {
    Lane messages("messages");
    Lane sums("sums");
    const auto pipe = everyone(world, messages, "pipe");
    const auto comm = everyone(world, sums, "data");
    comm->barrier().wait();
    const Stopwatch watch;
    const std::vector<std::string> parts = {"rank 1 failed: " + reason};
    if (world.rank() == 1) {
      sleep_ms(100);
      world.abort(reason);
      world.abort("a later reason");
    } else {
      const Work message = pipe->recv(empty<float>(5), 1);
      expect_error(Errc::peer_lost, parts, [&] { comm->all_reduce(values<float>(0, 5)).wait(); });
      expect_error(Errc::peer_lost, parts, [&] { message.wait(); });
    }
    expect_error(Errc::peer_lost, parts, [&] { comm->barrier().wait(); });
    EXPECT_LT(watch.seconds(), 1.1);
    sleep_ms(300);
  });
}

TYPED_TEST_P(CommFailures, TheFirstRankToThrowIsReported) {
  const Stopwatch watch;
  try {
    TypeParam::run(4, patient(), [&](World& world) {
      Lane lane("comm");
      const auto comm = everyone(world, lane);
      comm->barrier().wait();
      if (world.rank() == 3) {
        sleep_ms(50);
        throw std::out_of_range("not the peers' fault");
      }
      comm->all_reduce(values<float>(0, 5)).wait();
    });
    ADD_FAILURE() << "expected an exception";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "not the peers' fault");
  }
  EXPECT_LT(watch.seconds(), 2);
}

TYPED_TEST_P(CommFailures, AnExceptionIsNotHeldUpByWorkUnderWay) {
  const Stopwatch watch;
  EXPECT_THROW(TypeParam::run(3, patient(),
                              [&](World& world) {
                                Lane lane("comm");
                                const auto comm = everyone(world, lane);
                                comm->barrier().wait();
                                if (world.rank() == 0) return comm->recv(empty<float>(5), 1).wait();
                                comm->recv(empty<float>(5), 0);
                                if (world.rank() == 1) throw std::out_of_range("too far");
                              }),
               std::out_of_range);
  EXPECT_LT(watch.seconds(), 2);
}

TYPED_TEST_P(CommFailures, ARankThatLeftIsNamed) {
  TypeParam::run(3, patient(), [&](World& world) {
    Lane lane;
    const auto comm = everyone(world, lane, "data");
    comm->barrier().wait();
    if (world.rank() == 1) return;
    const Stopwatch watch;
    expect_error(Errc::peer_lost, {"data", "rank 1"},
                 [&] { comm->all_reduce(values<float>(0, 5)).wait(); });
    EXPECT_LT(watch.seconds(), 2);
    sleep_ms(400);
  });
}

REGISTER_TYPED_TEST_SUITE_P(CommFailures, TimeoutNamesTheRankThatIsLate,
                            TimeoutOfAReceiveNamesTheSender, DifferentCallsThrowOnEveryMember,
                            AbortEndsAllWaitsWithinASecond, TheFirstRankToThrowIsReported,
                            AnExceptionIsNotHeldUpByWorkUnderWay, ARankThatLeftIsNamed);

}  // namespace engine::comm::test

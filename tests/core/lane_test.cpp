#include "engine/core/lane.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace engine {
namespace {

/// Opens once; work waits for it.
class Gate {
 public:
  void open() {
    open_ = true;
    open_.notify_all();
  }
  void pass() const { open_.wait(false); }

 private:
  std::atomic<bool> open_ = false;
};

TEST(Lane, RunsInTheOrderOfSubmission) {
  std::vector<int> order;
  Lane lane("ordered");
  EXPECT_TRUE(lane.threaded());
  EXPECT_EQ(lane.name(), "ordered");
  for (int i = 0; i < 200; ++i) lane.submit([&order, i] { order.push_back(i); });
  lane.drain();
  std::vector<int> expected(200);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(Lane, InlineWorkRunsAtOnceInTheCaller) {
  Lane lane;
  EXPECT_FALSE(lane.threaded());
  std::thread::id ran_in;
  const Event event = lane.submit([&] { ran_in = std::this_thread::get_id(); });
  EXPECT_TRUE(event.done());
  EXPECT_EQ(ran_in, std::this_thread::get_id());
  event.wait();
  lane.drain();
}

TEST(Lane, ThreadedWorkDoesNotBlockTheCaller) {
  Gate gate;
  Lane lane("comm");
  const Event event = lane.submit([&] { gate.pass(); });
  EXPECT_FALSE(event.done());
  gate.open();
  event.wait();
  EXPECT_TRUE(event.done());
}

TEST(Lane, WorkWaitsForEventsOfOtherLanes) {
  Gate gate;
  std::vector<int> order;
  Lane first("first");
  Lane second("second");
  const Event ready = first.submit([&] {
    gate.pass();
    order.push_back(1);
  });
  const Event after = second.submit([&] { order.push_back(2); }, {ready, Event()});
  EXPECT_FALSE(after.done());
  gate.open();
  after.wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(Lane, InlineWorkWaitsForEventsToo) {
  Lane threaded("first");
  Lane lane;
  int value = 0;
  const Event ready = threaded.submit([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    value = 1;
  });
  lane.submit([&] { EXPECT_EQ(value, 1); }, {ready});
}

TEST(Lane, WorkOfALaneRunsItsOwnSubmissionsAtOnce) {
  for (const bool threaded : {false, true}) {
    const auto lane = threaded ? std::make_unique<Lane>("again") : std::make_unique<Lane>();
    std::vector<int> order;
    lane->submit([&] {
      order.push_back(1);
      const Event inner = lane->submit([&] { order.push_back(2); });
      EXPECT_TRUE(inner.done());
      order.push_back(3);
    });
    lane->submit([&] { order.push_back(4); });
    lane->drain();
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
  }
}

TEST(Lane, AThreadedLaneBreaksAndKeepsItsError) {
  Lane lane("broken");
  bool ran = false;
  const Event good = lane.submit([] {});
  const Event bad = lane.submit([] { throw std::out_of_range("first"); });
  const Event later = lane.submit([&] { ran = true; });
  EXPECT_NO_THROW(good.wait());
  EXPECT_THROW(bad.wait(), std::out_of_range);
  EXPECT_THROW(later.wait(), std::out_of_range);
  EXPECT_THROW(later.wait(), std::out_of_range) << "an event throws to everyone who waits";
  EXPECT_THROW(lane.drain(), std::out_of_range);
  EXPECT_FALSE(ran);
}

TEST(Lane, AnInlineLaneThrowsAtOnceAndBreaks) {
  Lane lane;
  EXPECT_THROW(lane.submit([] { throw std::out_of_range("first"); }), std::out_of_range);
  bool ran = false;
  EXPECT_THROW(lane.submit([&] { ran = true; }), std::out_of_range);
  EXPECT_FALSE(ran);
}

TEST(Lane, AFailedEventBreaksTheLaneThatWaitsForIt) {
  Lane first("first");
  Lane second("second");
  const Event bad = first.submit([] { throw std::out_of_range("first"); });
  EXPECT_THROW(second.submit([] {}, {bad}).wait(), std::out_of_range);
  EXPECT_THROW(second.submit([] {}).wait(), std::out_of_range);
}

TEST(Lane, AnErrorInNestedWorkIsThrownToTheOuter) {
  Lane lane("nested");
  std::atomic<bool> caught = false;
  const Event outer = lane.submit([&] {
    try {
      lane.submit([] { throw std::out_of_range("inner"); });
    } catch (const std::out_of_range&) {
      caught = true;
    }
  });
  EXPECT_NO_THROW(outer.wait());
  EXPECT_TRUE(caught);
}

TEST(Lane, TheClosureIsDestroyedBeforeTheEventIsComplete) {
  Lane lane("comm");
  for (int i = 0; i < 200; ++i) {
    auto held = std::make_shared<int>(i);
    const std::weak_ptr<int> watch = held;
    const Event event = lane.submit([held = std::move(held)] { EXPECT_GE(*held, 0); });
    event.wait();
    EXPECT_TRUE(watch.expired());
  }
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = held;
  const Event failed = lane.submit([held = std::move(held)] { throw std::out_of_range("x"); });
  EXPECT_THROW(failed.wait(), std::out_of_range);
  EXPECT_TRUE(watch.expired());
}

TEST(Lane, DestructionWaitsForSubmittedWork) {
  int done = 0;
  {
    Lane lane("last");
    for (int i = 0; i < 5; ++i) {
      lane.submit([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ++done;
      });
    }
  }
  EXPECT_EQ(done, 5);
}

TEST(Event, ADefaultEventIsComplete) {
  const Event event;
  EXPECT_TRUE(event.done());
  event.wait();
}

TEST(Lane, SeveralThreadsMaySubmit) {
  Lane lane("shared");
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) lane.submit([&] { ++count; }).wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 400);
}

}  // namespace
}  // namespace engine

#pragma once
// What every backend does alike, as typed test suites. A backend is a type with
//
//   // Runs `body` on `ranks` ranks that are threads of this process, and throws the exception of
//   // the rank that failed first.
//   static void run(int ranks, const Timeouts& timeouts, const std::function<void(World&)>& body);
//   static std::vector<int> sizes();  // numbers of ranks to try
//
// and instantiates CommOperations, CommGroups (here) and CommFailures (conformance_failures.hpp).
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "engine/comm/exchange.hpp"
#include "tests/comm/conformance_support.hpp"

namespace engine::comm::test {

template <class Backend>
class CommOperations : public testing::Test {
 protected:
  /// `body(world, group of all)` on every number of ranks; on odd numbers with a threaded lane.
  static void on_all_sizes(const std::function<void(World&, Communicator&)>& body) {
    for (const int ranks : Backend::sizes()) {
      Backend::run(ranks, patient(), [&](World& world) {
        SCOPED_TRACE(fmt::format("rank {} of {}", world.rank(), world.size()));
        const auto lane =
            ranks % 2 != 0 ? std::make_unique<Lane>("comm") : std::make_unique<Lane>();
        const auto comm = everyone(world, *lane);
        body(world, *comm);
      });
    }
  }
};
TYPED_TEST_SUITE_P(CommOperations);

TYPED_TEST_P(CommOperations, AllReduceAddsInRankOrderAndRoundsOnce) {
  TestFixture::on_all_sizes([](World& world, Communicator& comm) {
    for_reducible_types([&]<class T>() {
      for (const std::int64_t n : sizes(world)) {
        for (const ReduceOp op : kReduceOps) {
          const Tensor data = values<T>(world.rank(), n);
          comm.all_reduce(data, op).wait();
          EXPECT_EQ(0, wrong<T>(data, [&](auto i) { return reduced<T>(world.size(), i, op); }))
              << name(dtype_of<T>) << " x " << n << ", reduction " << static_cast<int>(op);
        }
      }
    });
  });
}

TYPED_TEST_P(CommOperations, ReduceScatterGivesEachItsPart) {
  TestFixture::on_all_sizes([](World& world, Communicator& comm) {
    const int P = world.size();
    for_reducible_types([&]<class T>() {
      for (const std::int64_t n : sizes(world)) {
        const Tensor input = values<T>(world.rank(), n * P);
        const Tensor output = empty<T>(n);
        comm.reduce_scatter(input, output).wait();
        const std::int64_t first = n * world.rank();
        const auto expected = [&](auto i) { return reduced<T>(P, first + i, ReduceOp::sum); };
        EXPECT_EQ(0, wrong<T>(output, expected)) << name(dtype_of<T>) << " x " << n;
        EXPECT_EQ(0, wrong<T>(input, [&](auto i) { return value<T>(world.rank(), i); }));
      }
    });
  });
}

TYPED_TEST_P(CommOperations, ReduceScatterInPlaceChangesTheOwnPartOnly) {
  TestFixture::on_all_sizes([](World& world, Communicator& comm) {
    const int P = world.size();
    for_reducible_types([&]<class T>() {
      for (const std::int64_t n : sizes(world)) {
        for (const ReduceOp op : kReduceOps) {
          const std::int64_t first = n * world.rank();
          const Tensor input = values<T>(world.rank(), n * P);
          comm.reduce_scatter(input, input.slice(0, first, first + n), op).wait();
          EXPECT_EQ(0, wrong<T>(input, [&](auto i) {
                      return i >= first && i < first + n ? reduced<T>(P, i, op)
                                                         : value<T>(world.rank(), i);
                    }));
        }
      }
    });
  });
}

TYPED_TEST_P(CommOperations, AllGatherJoinsInRankOrder) {
  TestFixture::on_all_sizes([](World& world, Communicator& comm) {
    for_all_types([&]<class T>() {
      for (const std::int64_t n : sizes(world)) {
        const auto expected = [&](auto i) { return value<T>(static_cast<int>(i / n), i % n); };
        const Tensor apart = empty<T>(n * world.size());
        comm.all_gather(values<T>(world.rank(), n), apart).wait();
        EXPECT_EQ(0, wrong<T>(apart, expected)) << name(dtype_of<T>) << " x " << n;

        const Tensor in_place = empty<T>(n * world.size());
        const Tensor own = in_place.slice(0, n * world.rank(), n * (world.rank() + 1));
        for (std::int64_t i = 0; i < n; ++i) own.data<T>()[i] = value<T>(world.rank(), i);
        comm.all_gather(own, in_place).wait();
        EXPECT_EQ(0, wrong<T>(in_place, expected)) << name(dtype_of<T>) << " x " << n;
      }
    });
  });
}

TYPED_TEST_P(CommOperations, AllToAllTransposesParts) {
  TestFixture::on_all_sizes([](World& world, Communicator& comm) {
    for_all_types([&]<class T>() {
      for (const std::int64_t n : sizes(world)) {
        const Tensor output = empty<T>(n * world.size());
        comm.all_to_all(values<T>(world.rank(), n * world.size()), output).wait();
        EXPECT_EQ(0, wrong<T>(output, [&](auto i) {
                    return value<T>(static_cast<int>(i / n), n * world.rank() + i % n);
                  }));
      }
    });
  });
}

TYPED_TEST_P(CommOperations, BroadcastFromEveryRoot) {
  TestFixture::on_all_sizes([](World& world, Communicator& comm) {
    for (int root = 0; root < world.size(); ++root) {
      for (const std::int64_t n : sizes(world)) {
        const Tensor data = values<float>(world.rank(), n, root);
        comm.broadcast(data, root).wait();
        EXPECT_EQ(0, wrong<float>(data, [&](auto i) { return value<float>(root, i, root); }));
      }
    }
  });
}

TYPED_TEST_P(CommOperations, MessagesArriveInOrderPerDirection) {
  TestFixture::on_all_sizes([](World& world, Communicator& comm) {
    const int P = world.size();
    if (P == 1) return;
    const int next = (world.rank() + 1) % P;
    const int previous = (world.rank() + P - 1) % P;
    for (const std::int64_t n : sizes(world)) {
      const Tensor got = empty<bf16>(n);
      const auto send = [&] { return comm.send(values<bf16>(world.rank(), n), next); };
      const auto recv = [&] { return comm.recv(got, previous); };
      const bool sends_first = world.rank() % 2 == 0;
      const Work first = sends_first ? send() : recv();
      const Work second = sends_first ? recv() : send();
      first.wait();
      second.wait();
      EXPECT_EQ(0, wrong<bf16>(got, [&](auto i) { return value<bf16>(previous, i); }));
    }
    // Rank 0 takes from the others in falling order what they sent at once.
    for (int round = 0; round < 3; ++round) {
      if (world.rank() != 0) {
        comm.send(values<float>(world.rank(), 100 + round, round), 0).wait();
        continue;
      }
      for (int from = P - 1; from > 0; --from) {
        const Tensor got = empty<float>(100 + round);
        comm.recv(got, from).wait();
        EXPECT_EQ(0, wrong<float>(got, [&](auto i) { return value<float>(from, i, round); }));
      }
    }
  });
}

TYPED_TEST_P(CommOperations, BarrierHoldsUntilAllEntered) {
  std::atomic<int> entered = 0;
  std::atomic<int> ended = 0;
  TestFixture::on_all_sizes([&](World& world, Communicator& comm) {
    for (int round = 1; round <= 3; ++round) {
      entered += 1;
      comm.barrier().wait();
      EXPECT_GE(entered.load(), round * world.size());
      comm.barrier().wait();
    }
    if (++ended == world.size()) entered = ended = 0;
  });
}

TYPED_TEST_P(CommOperations, MetaTensorsTakePartWithoutMoving) {
  TestFixture::on_all_sizes([](World& world, Communicator& comm) {
    MemoryMeter meter;
    const int P = world.size();
    const auto meta = [&](std::int64_t n) {
      return Tensor::meta({n}, DType::bf16, Category::communication, meter);
    };
    const auto real = [&](std::int64_t n) { return empty<bf16>(n); };
    const auto sent = [&](const auto& make) {
      const std::int64_t before = comm.sent_bytes();
      comm.all_reduce(make(24 * P)).wait();
      comm.all_gather(make(5), make(5 * P)).wait();
      comm.reduce_scatter(make(5 * P), make(5)).wait();
      comm.all_to_all(make(5 * P), make(5 * P)).wait();
      comm.broadcast(make(5), P - 1).wait();
      if (world.rank() == 0 && P > 1) comm.send(make(9), 1).wait();
      if (world.rank() == 1) comm.recv(make(9), 0).wait();
      return comm.sent_bytes() - before;
    };
    EXPECT_EQ(sent(meta), sent(real));
  });
}

TYPED_TEST_P(CommOperations, SentBytesAreTheDocumentedOnes) {
  TestFixture::on_all_sizes([](World& world, Communicator& comm) {
    const std::int64_t P = world.size();
    const auto expect_sent = [&](std::int64_t expected, const auto& call) {
      const std::int64_t before = comm.sent_bytes();
      call().wait();
      EXPECT_EQ(comm.sent_bytes() - before, expected);
    };
    const std::int64_t bytes = 4 * 840 * P;
    const std::int64_t others = bytes * (P - 1) / P;
    const Tensor whole = values<float>(world.rank(), 840 * P);
    const Tensor other = values<float>(world.rank(), 840 * P);
    const Tensor part = values<float>(world.rank(), 840);
    expect_sent(2 * others, [&] { return comm.all_reduce(whole); });
    expect_sent(others, [&] { return comm.all_gather(part, whole); });
    expect_sent(others, [&] { return comm.reduce_scatter(whole, part); });
    expect_sent(others, [&] { return comm.all_to_all(whole, other); });
    expect_sent(0, [&] { return comm.barrier(); });
    if (world.rank() == 0 && P > 1) expect_sent(4 * 840, [&] { return comm.send(part, 1); });
    if (world.rank() == 1) expect_sent(0, [&] { return comm.recv(part, 0); });
  });
}

TYPED_TEST_P(CommOperations, ExchangeGivesAllValuesToAll) {
  TestFixture::on_all_sizes([](World& world, Communicator& comm) {
    const std::vector<int> all = exchange(comm, 10 * world.rank());
    for (int r = 0; r < world.size(); ++r) EXPECT_EQ(all.at(static_cast<std::size_t>(r)), 10 * r);
    EXPECT_EQ(exchange_sum(comm, 1.5), 1.5 * world.size());
  });
}

TYPED_TEST_P(CommOperations, RepeatedRunsAgreeBitwise) {
  const int P = TypeParam::sizes().back();
  std::vector<std::vector<float>> results(2);
  for (std::vector<float>& result : results) {
    TypeParam::run(P, patient(), [&](World& world) {
      Lane lane;
      const auto comm = everyone(world, lane);
      const Tensor data = values<float>(world.rank(), 10001);
      const bool second = &result == &results.back();  // ranks come in another order
      const int wait_ms = second ? P - world.rank() : world.rank();
      std::this_thread::sleep_for(std::chrono::milliseconds(3 * wait_ms));
      comm->all_reduce(data).wait();
      if (world.rank() == 0) result.assign(data.data<float>(), data.data<float>() + data.numel());
    });
  }
  EXPECT_EQ(results[0], results[1]);
}

REGISTER_TYPED_TEST_SUITE_P(CommOperations, AllReduceAddsInRankOrderAndRoundsOnce,
                            ReduceScatterGivesEachItsPart,
                            ReduceScatterInPlaceChangesTheOwnPartOnly, AllGatherJoinsInRankOrder,
                            AllToAllTransposesParts, BroadcastFromEveryRoot,
                            MessagesArriveInOrderPerDirection, BarrierHoldsUntilAllEntered,
                            MetaTensorsTakePartWithoutMoving, SentBytesAreTheDocumentedOnes,
                            ExchangeGivesAllValuesToAll, RepeatedRunsAgreeBitwise);

template <class Backend>
class CommGroups : public testing::Test {};
TYPED_TEST_SUITE_P(CommGroups);

TYPED_TEST_P(CommGroups, RowsColumnsAndWorldRunSideBySide) {
  for (const int columns : {2, 3, 4}) {
    const int P = 2 * columns;
    TypeParam::run(P, patient(), [&](World& world) {
      const int row = world.rank() / columns;
      const int column = world.rank() % columns;
      std::vector<int> row_members(static_cast<std::size_t>(columns));
      std::iota(row_members.begin(), row_members.end(), row * columns);
      Lane row_lane("row");
      Lane column_lane("column");
      Lane world_lane("world");
      const auto in_row = world.group(fmt::format("row {}", row), row_members, row_lane);
      const auto in_column =
          world.group(fmt::format("column {}", column), {column, column + columns}, column_lane);
      const auto all = everyone(world, world_lane);
      for (int round = 0; round < 20; ++round) {
        const std::int64_t n = 100 + 900 * (round % 3);
        const Tensor a = values<std::int32_t>(in_row->rank(), n, row);
        const Tensor b = values<std::int32_t>(in_column->rank(), n, 100 + column);
        const Tensor c = values<std::int32_t>(world.rank(), n, round);
        std::vector<Work> works(3);
        for (int k = 0; k < 3; ++k) {  // in another order on every rank
          const int which = (k + world.rank()) % 3;
          works[static_cast<std::size_t>(k)] = which == 0   ? in_row->all_reduce(a)
                                               : which == 1 ? in_column->all_reduce(b)
                                                            : all->all_reduce(c);
        }
        for (const Work& work : works) work.wait();
        const auto sum = [](int ranks, int salt) {
          return [=](auto i) { return reduced<std::int32_t>(ranks, i, ReduceOp::sum, salt); };
        };
        EXPECT_EQ(0, wrong<std::int32_t>(a, sum(columns, row)));
        EXPECT_EQ(0, wrong<std::int32_t>(b, sum(2, 100 + column)));
        EXPECT_EQ(0, wrong<std::int32_t>(c, sum(P, round)));
      }
    });
  }
}

TYPED_TEST_P(CommGroups, ABlockedReceiveHoldsUpNoOtherGroup) {
  TypeParam::run(2, patient(), [&](World& world) {
    Lane messages("messages");
    Lane sums("sums");
    const auto pair = everyone(world, messages, "pair");
    const auto all = everyone(world, sums);
    const Tensor message = values<float>(world.rank(), 10);
    Work received;
    if (world.rank() == 1) received = pair->recv(message, 0);
    for (int i = 0; i < 5; ++i) all->all_reduce(values<float>(world.rank(), 100)).wait();
    EXPECT_EQ(received.done(), world.rank() == 0);
    all->barrier().wait();
    if (world.rank() == 0) pair->send(message, 1).wait();
    received.wait();
    EXPECT_EQ(0, wrong<float>(message, [](auto i) { return value<float>(0, i); }));
  });
}

TYPED_TEST_P(CommGroups, SubmittedWorkKeepsItsTensors) {
  TypeParam::run(2, patient(), [&](World& world) {
    Lane lane("comm");
    const auto comm = everyone(world, lane);
    Tensor sum = values<float>(world.rank(), 5000);
    float* const data = sum.data<float>();
    const Tensor kept = sum;
    for (int i = 0; i < 10; ++i) comm->all_reduce(values<float>(world.rank(), 5000));
    const Work work = comm->all_reduce(sum);
    sum = {};
    work.wait();
    EXPECT_EQ(kept.use_count(), 1);
    EXPECT_EQ(data[17], reduced<float>(2, 17, ReduceOp::sum));
  });
}

TYPED_TEST_P(CommGroups, MembersMayBeInAnyOrder) {
  TypeParam::run(3, patient(), [&](World& world) {
    if (world.rank() == 1) return;
    Lane lane;
    const auto comm = world.group("turned", {2, 0}, lane);
    EXPECT_EQ(comm->rank(), world.rank() == 2 ? 0 : 1);
    EXPECT_EQ(exchange(*comm, world.rank()), (std::vector<int>{2, 0}));
    comm->barrier().wait();
  });
}

TYPED_TEST_P(CommGroups, SplitOrdersByKeyAndKeepsColorsApart) {
  TypeParam::run(5, patient(), [&](World& world) {
    Lane lane;
    Lane other("split");
    const auto all = everyone(world, lane);
    const auto part = all->split(world.rank() % 2, -world.rank(), other);
    const std::vector<int> expected =
        world.rank() % 2 == 0 ? std::vector<int>{4, 2, 0} : std::vector<int>{3, 1};
    EXPECT_EQ(part->group().members, expected);
    EXPECT_EQ(exchange(*part, world.rank()), expected);
    const auto alone = all->split(world.rank(), 0, lane);
    EXPECT_EQ(alone->size(), 1);
    EXPECT_EQ(exchange_sum(*alone, world.rank()), world.rank());
    all->barrier().wait();
  });
}

REGISTER_TYPED_TEST_SUITE_P(CommGroups, RowsColumnsAndWorldRunSideBySide,
                            ABlockedReceiveHoldsUpNoOtherGroup, SubmittedWorkKeepsItsTensors,
                            MembersMayBeInAnyOrder, SplitOrdersByKeyAndKeepsColorsApart);

}  // namespace engine::comm::test

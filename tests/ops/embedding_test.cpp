#include "engine/ops/embedding.hpp"

#include "tests/ops/reference.hpp"

namespace engine::ops::test {
namespace {

ENGINE_OP_TEST(EmbeddingTest);

TEST_P(EmbeddingTest, AddsTokenAndPositionRows) {
  for (const std::int64_t columns : {1, 7, 65, 130}) {
    const Tensor ids = tokens(device(), {3, 17}, 11, 1);
    const Tensor table = rand({11, columns}, 2);
    const Tensor positions = rand({20, columns}, 3);
    const Values token_rows = values(table);
    const Values position_rows = values(positions);
    for (const bool with_positions : {false, true}) {
      const Tensor out = nans({3, 17, columns});
      embedding(device(), ids, table, with_positions ? positions : Tensor(), 3, out);
      Values expected;
      for (std::size_t i = 0; i < 3 * 17; ++i) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const auto row = std::int64_t{ids.data<std::int32_t>()[i]};
          expected.push_back(token_rows[at(row * columns + c)]);
          if (with_positions) {
            expected.back() += position_rows[(3 + i % 17) * at(columns) + at(c)];
          }
        }
      }
      expect_close(out, expected, bound(1e-7));
    }
  }
}

TEST_P(EmbeddingTest, BackwardSumsRowsInTokenOrder) {
  for (const std::int64_t columns : {1, 7, 130}) {
    const Tensor ids = tokens(device(), {3, 65}, 11, 1);
    const Tensor dy = rand({3, 65, columns}, 2);
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      const bool add = write == Write::accumulate;
      const Tensor dtable =
          add ? random(device(), {13, columns}, DType::f32, 3) : nans_f32({13, columns});
      // f32 in the same order: the same bits.
      std::vector<float> expected(at(dtable.numel()), 0.0F);
      if (add) std::copy_n(dtable.data<float>(), dtable.numel(), expected.begin());
      const Values d = values(dy);
      for (std::int64_t i = 0; i < ids.numel(); ++i) {
        for (std::int64_t c = 0; c < columns; ++c) {
          expected[at(ids.data<std::int32_t>()[i] * columns + c)] +=
              static_cast<float>(d[at(i * columns + c)]);
        }
      }
      embedding_backward(device(), ids, dy, dtable, write);
      EXPECT_EQ(std::memcmp(dtable.raw(), expected.data(), dtable.bytes()), 0);
    }
  }
}

TEST_P(EmbeddingTest, PositionBackwardSumsTheBatchAndZeroesTheRest) {
  const Tensor dy = rand({3, 17, 65}, 1);
  for (const Write write : {Write::overwrite, Write::accumulate}) {
    const bool add = write == Write::accumulate;
    const Tensor d = add ? random(device(), {20, 65}, DType::f32, 3) : nans_f32({20, 65});
    Values expected = add ? values(d) : Values(20 * 65);
    const Values v = values(dy);
    for (std::size_t i = 0; i < v.size(); ++i) expected[i % (17 * 65)] += v[i];
    position_embedding_backward(device(), dy, d, write);
    expect_close(d, expected, 1e-6);
  }
}

TEST(Embedding, ThreadsDoNotMatterAndMetaPassesThrough) {
  expect_threads_do_not_matter([](DeviceContext& device) {
    const Tensor ids = tokens(device, {4, 100}, 50, 1);
    const Tensor dy = random(device, {4, 100, 200}, DType::f32, 2);
    const Tensor dtable = empty(device, {50, 200});
    const Tensor dpositions = empty(device, {100, 200});
    embedding_backward(device, ids, dy, dtable, Write::overwrite);
    position_embedding_backward(device, dy, dpositions, Write::overwrite);
    return std::vector{dtable, dpositions};
  });
  const auto meta = make_meta_device();
  const Tensor ids = empty(*meta, {2, 3}, DType::i32);
  const Tensor table = empty(*meta, {7, 5});
  const Tensor out = empty(*meta, {2, 3, 5});
  embedding(*meta, ids, table, table, 4, out);
  embedding_backward(*meta, ids, out, table, Write::overwrite);
  position_embedding_backward(*meta, out, table, Write::overwrite);
  EXPECT_THROW(embedding(*meta, ids, table, table, 5, out), Error);
  EXPECT_THROW(embedding(*meta, ids, table, {}, 0, ids), Error);
}

}  // namespace
}  // namespace engine::ops::test

#include "engine/train/session.hpp"

#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/fixture.hpp"
#include "tests/support/temporary_directory.hpp"

namespace engine::train {
namespace {

namespace fs = std::filesystem;
using test::Fixture;

std::vector<float> all_weights(Session& session) {
  std::vector<float> weights;
  for (parallel::Unit& unit : session.units()) {
    for (int i = 0; i < unit.layout().entries(); ++i) {
      const auto values = unit.master(i).span<float>();
      weights.insert(weights.end(), values.begin(), values.end());
    }
  }
  return weights;
}

/// Losses and final weights of `steps` steps of a fixture from random weights.
std::pair<std::vector<double>, std::vector<float>> run(const std::string& name, int threads,
                                                       DType compute, std::int64_t steps = 4) {
  const Fixture fixture(name);
  nn::ModelConfig config = fixture.model().config();
  config.dropout = 0.1;
  parallel::RankContext rank = test::cpu_rank(threads, 7);
  SessionOptions options = fixture.options("adamw");
  options.compute = compute;
  Session session(rank, nn::make_model(config), options);
  std::vector<double> losses;
  for (std::int64_t s = 0; s < steps; ++s) {
    losses.push_back(session.step(fixture.batches(session, s, 4), 1e-3).loss);
  }
  return {losses, all_weights(session)};
}

TEST(Session, RunsAndThreadCountsAreBitwiseEqual) {
  for (const char* name : {"gpt2_masked", "llama_tiny"}) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      const auto first = run(name, 2, compute);
      EXPECT_EQ(run(name, 2, compute), first);
      EXPECT_EQ(run(name, 1, compute), first);
      EXPECT_EQ(run(name, 3, compute), first);
    }
  }
}

TEST(Session, EvaluationIsTheTrainingLossWithoutASideEffect) {
  const Fixture fixture("gpt2_masked");
  parallel::RankContext rank = test::cpu_rank();
  Session session(rank, nn::make_model(fixture.model().config()), fixture.options("adamw"));
  fixture.load_weights(session);
  const auto before = all_weights(session);
  const auto batches = fixture.batches(session, 0, 4);
  const Session::EvalResult result = session.evaluate(batches);
  EXPECT_EQ(all_weights(session), before);
  const double expected = fixture.read_json("adamw.json")[0]["loss"];
  EXPECT_NEAR(result.loss, expected, 2e-6 * expected);
  EXPECT_EQ(result.targets, fixture.read_json("adamw.json")[0]["targets"]);
  const StepResult step = session.step(batches, 1e-3);
  EXPECT_NEAR(step.loss, result.loss, 1e-12);
}

TEST(Session, SaveAndLoadContinueBitwise) {
  const test::TemporaryDirectory scratch;
  const fs::path dir = scratch / "state";
  const Fixture fixture("llama_tiny");
  for (const char* optimizer : {"adamw", "sgd"}) {
    for (const DType moments : {DType::f32, DType::bf16}) {
      SessionOptions options = fixture.options(optimizer);
      options.moments = moments;
      options.compute = moments;  // covers bf16 weights too
      parallel::RankContext rank = test::cpu_rank();
      Session a(rank, nn::make_model(fixture.model().config()), options);
      for (std::int64_t s = 0; s < 3; ++s) a.step(fixture.batches(a, s, 12), 1e-3);
      checkpoint::RunInfo info;
      info.step = 3;
      info.consumed_samples = 36;
      info.config = "text with \"quotes\"\n";
      a.save(dir.string(), info);

      parallel::RankContext other = test::cpu_rank(1, 99);
      Session b(other, nn::make_model(fixture.model().config()), options);
      const checkpoint::RunInfo loaded = b.load(dir.string());
      EXPECT_EQ(loaded.step, 3);
      EXPECT_EQ(loaded.consumed_samples, 36);
      EXPECT_EQ(loaded.config, info.config);
      EXPECT_EQ(b.optimizer_steps(), 3);
      EXPECT_EQ(all_weights(a), all_weights(b));
      for (std::int64_t s = 3; s < 5; ++s) {
        EXPECT_EQ(a.step(fixture.batches(a, s, 12), 1e-3).loss,
                  b.step(fixture.batches(b, s, 12), 1e-3).loss);
      }
      EXPECT_EQ(all_weights(a), all_weights(b));
      EXPECT_THROW(a.save(dir.string()), Error);  // never over an existing state
      fs::remove_all(dir);
    }
  }
}

TEST(Session, DamagedStatesAreRefusedByName) {
  const test::TemporaryDirectory scratch;
  const fs::path dir = scratch / "state";
  const Fixture fixture("gpt2_tiny");
  parallel::RankContext rank = test::cpu_rank();
  Session session(rank, nn::make_model(fixture.model().config()), fixture.options("adamw"));
  session.save(dir.string());
  const auto expect_refused = [&](const std::string& part) {
    try {
      session.load(dir.string());
      ADD_FAILURE() << "loaded; expected: " << part;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  {
    std::fstream file(dir / "optimizer.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('x');
  }
  expect_refused("optimizer.safetensors");
  fs::remove(dir / "optimizer.safetensors");
  expect_refused("optimizer.safetensors");
  fs::resize_file(dir / "manifest.json", 40);
  expect_refused("manifest.json");
}

TEST(Session, AKvCacheGivesTheLogitsOfTheWholeSequence) {
  for (const char* name : {"gpt2_tiny", "llama_tiny"}) {
    const Fixture fixture(name);
    const nn::ModelConfig config = fixture.model().config();
    parallel::RankContext rank = test::cpu_rank();
    SessionOptions options;
    options.training = false;
    Session session(rank, nn::make_model(config), options);
    fixture.load_weights(session);
    const nn::MicroBatch whole = fixture.batches(session, 0, 1)[0];
    const Tensor expected = session.generate(whole, nullptr, nn::kLogits);
    nn::KvCache cache(rank.device(), config.layers, 1, fixture.T, config.kv_heads * config.head_dim,
                      DType::f32);
    const std::int64_t cuts[] = {0, 5, 6, 7, 12, fixture.T};  // a prompt, single tokens, chunks
    for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
      const nn::MicroBatch part = {whole.tokens.slice(1, cuts[i], cuts[i + 1]), {}, 0};
      const Tensor got = session.generate(part, &cache, nn::kLogits);
      const Tensor want = expected.slice(1, cuts[i], cuts[i + 1]);
      EXPECT_LT(test::relative_l2(got.span<float>(), want.span<float>()), 2e-6) << name;
    }
    EXPECT_EQ(cache.length(), fixture.T);
  }
}

std::int64_t status_kb(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1));
  }
  return -1;
}

std::int64_t open_descriptors() {
  std::int64_t count = 0;
  DIR* dir = ::opendir("/proc/self/fd");
  while (::readdir(dir) != nullptr) ++count;
  ::closedir(dir);
  return count;
}

TEST(Session, AfterTheSecondStepNothingIsTakenFromTheSystem) {
  const Fixture fixture("gpt2_tiny");
  parallel::RankContext rank = test::cpu_rank();
  Session session(rank, nn::make_model(fixture.model().config()), fixture.options("adamw"));
  const auto batches = fixture.batches(session, 0, 3);
  for (int s = 0; s < 2; ++s) session.step(batches, 1e-4);
  const std::int64_t committed = rank.device().memory().stats().committed_bytes;
  const std::int64_t mapped = status_kb("VmSize");
  const std::int64_t resident = status_kb("VmRSS");
  const std::int64_t descriptors = open_descriptors();
  for (int s = 0; s < 200; ++s) session.step(batches, 1e-4);
  EXPECT_EQ(rank.device().memory().stats().committed_bytes, committed);
  EXPECT_EQ(open_descriptors(), descriptors);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep books of their own
  EXPECT_EQ(status_kb("VmSize"), mapped);
  EXPECT_LE(status_kb("VmRSS"), resident + 64);
#else
  (void)mapped;
  (void)resident;
#endif
}

TEST(Session, ThePredictedMemoryIsTheMeasuredMemory) {
  const Fixture fixture("gpt2_tiny");
  const auto measure = [&](DeviceType type) {
    parallel::RankContext::Options options;
    options.device.device.type = type;
    options.device.threads = 1;
    parallel::RankContext rank(options);
    Session session(rank, nn::make_model(fixture.model().config()), fixture.options("adamw"));
    std::vector<nn::MicroBatch> micros = {session.make_batch(4, fixture.T)};
    if (type == DeviceType::cpu) micros = fixture.batches(session, 0, 4), micros.resize(1);
    session.step(micros, 1e-3);
    return rank.device().memory().stats();
  };
  const MemoryStats predicted = measure(DeviceType::meta);
  const MemoryStats measured = measure(DeviceType::cpu);
  for (const Category c : {Category::parameters, Category::gradients, Category::optimizer}) {
    EXPECT_EQ(predicted.categories[static_cast<std::size_t>(c)].peak_bytes,
              measured.categories[static_cast<std::size_t>(c)].peak_bytes)
        << name(c);
  }
  const auto activations = static_cast<std::size_t>(Category::activations);
  const auto got = static_cast<double>(measured.categories[activations].peak_bytes);
  EXPECT_NEAR(static_cast<double>(predicted.categories[activations].peak_bytes), got, 0.05 * got);
}

TEST(Session, AnEvaluationSessionHasNoGradientsAndDoesNotStep) {
  const Fixture fixture("gpt2_tiny");
  parallel::RankContext rank = test::cpu_rank();
  SessionOptions options;
  options.training = false;
  Session session(rank, nn::make_model(fixture.model().config()), options);
  EXPECT_EQ(rank.device().memory().stats().categories[1].now_bytes, 0);
  EXPECT_THROW(session.step(fixture.batches(session, 0, 12), 1e-3), Error);
}

}  // namespace
}  // namespace engine::train

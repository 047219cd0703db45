// The commands as users run them: what they write, and what they say about bad input.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/checkpoint/safetensors.hpp"
#include "tests/support/process.hpp"
#include "tests/support/temporary_directory.hpp"

namespace engine {
namespace {

namespace fs = std::filesystem;
using test::Finished;

constexpr const char* kConfig = R"([model]
family = "gpt2"
vocab_size = 50
context_length = 16
layers = 2
hidden_size = 32
heads = 4
dropout = 0.1
[batch]
global = 4
micro = 2
[optimizer]
lr = 3e-3
[lr_schedule]
warmup_steps = 2
min_lr = 1e-4
[data]
train = ["train.bin"]
valid = ["valid.bin"]
[train]
steps = 6
eval_every = 3
eval_batches = 2
threads = 2
[checkpoint]
dir = "checkpoints"
every = 2
keep = 2
[metrics]
jsonl = "metrics.jsonl"
log_samples = true
)";

class Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    write("config.toml", kConfig);
    write_tokens("train.bin", 16 * 10 + 5);
    write_tokens("valid.bin", 16 * 5 + 1);
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }
  void write_tokens(const std::string& name, int count, std::uint16_t extra = 0) const {
    std::vector<std::uint16_t> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(static_cast<std::uint16_t>(i * i % 47));
    if (extra != 0) tokens[tokens.size() / 2] = extra;
    std::ofstream(dir_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()),
               static_cast<std::streamsize>(tokens.size() * 2));
  }
  Finished run(const std::string& command, const std::string& arguments,
               const std::string& prefix = "") const {
    return test::run_command(dir_.string(), command, arguments, prefix);
  }
  std::vector<nlohmann::json> metrics() const {
    std::ifstream file(dir_ / "metrics.jsonl");
    std::vector<nlohmann::json> records;
    for (std::string line; std::getline(file, line);)
      records.push_back(nlohmann::json::parse(line));
    return records;
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_ / "checkpoints")) {
      if (entry.is_directory()) names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  void expect_error(const std::string& arguments, int status, const std::string& part,
                    const std::string& prefix = "") const {
    const Finished f = run("train", arguments, prefix);
    EXPECT_EQ(f.status, status) << arguments << "\n" << f.err;
    const std::size_t at = f.err.find("error: ");
    ASSERT_NE(at, std::string::npos) << arguments << "\n" << f.err;
    const std::string line = f.err.substr(at);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    EXPECT_NE(line.find(part), std::string::npos) << line << "lacks: " << part;
  }

  test::TemporaryDirectory scratch_;
  const fs::path& dir_ = scratch_.path();
};

TEST_F(Commands, TrainWritesMetricsEvaluationsAndTheNewestCheckpoints) {
  const Finished f = run("train", "config.toml");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.err.find("eval loss"), std::string::npos);
  const auto records = metrics();
  ASSERT_EQ(records.size(), 6U + 2U);
  std::vector<std::int64_t> samples;
  for (std::size_t i = 0, step = 0; i < records.size(); ++i) {
    if (records[i].contains("eval_loss")) {
      EXPECT_EQ(records[i]["step"], step - 1);
      continue;
    }
    EXPECT_EQ(records[i]["step"], step++);
    for (const char* key :
         {"loss", "grad_norm", "lr", "tokens", "samples", "targets", "skipped", "step_ms",
          "tokens_per_s", "mem_peak_bytes", "comm_bytes", "comm_exposed_ms", "sample_ids"}) {
      EXPECT_TRUE(records[i].contains(key)) << key;
    }
    for (const auto& id : records[i]["sample_ids"]) samples.push_back(id);
  }
  ASSERT_EQ(samples.size(), 24U);
  std::vector<std::int64_t> epoch(samples.begin(), samples.begin() + 10);
  std::sort(epoch.begin(), epoch.end());
  for (std::int64_t i = 0; i < 10; ++i) EXPECT_EQ(epoch[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-00000004", "step-00000006"}));
  EXPECT_TRUE(fs::exists(dir_ / "checkpoints/resolved.toml"));
}

TEST_F(Commands, TheSavedConfigGivesTheSameRun) {
  ASSERT_EQ(run("train", "config.toml").status, 0);
  const auto first = metrics();
  fs::rename(dir_ / "checkpoints", dir_ / "first");
  ASSERT_EQ(run("train", "first/resolved.toml --threads 1").status, 0);
  const auto second = metrics();
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (const char* key : {"loss", "grad_norm", "lr", "eval_loss", "sample_ids"}) {
      EXPECT_EQ(first[i].value(key, nlohmann::json()), second[i].value(key, nlohmann::json()));
    }
  }
}

TEST_F(Commands, AResumedRunIsTheUninterruptedRun) {
  ASSERT_EQ(run("train", "config.toml").status, 0);
  const auto whole = metrics();
  fs::remove_all(dir_ / "checkpoints");
  // Stopped after step 4; two records past it are cut off on resume.
  ASSERT_EQ(run("train", "config.toml --set lr_schedule.decay_steps=6 --set train.steps=4").status,
            0);
  {
    std::ofstream file(dir_ / "metrics.jsonl", std::ios::app);
    file << "{\"step\":4,\"loss\":9}\n{\"step\":5,\"lo";
  }
  const Finished f = run("train", "config.toml --resume auto");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.err.find("resumed from"), std::string::npos) << f.err;
  std::vector<nlohmann::json> resumed;
  for (const auto& r : metrics()) {
    if (!r.contains("eval_loss")) resumed.push_back(r);
  }
  std::size_t step = 0;
  for (const auto& r : whole) {
    if (r.contains("eval_loss")) continue;
    ASSERT_LT(step, resumed.size());
    for (const char* key : {"step", "loss", "grad_norm", "lr", "sample_ids", "samples", "tokens"}) {
      EXPECT_EQ(r[key], resumed[step][key]) << key;
    }
    ++step;
  }
  EXPECT_EQ(step, resumed.size());
}

TEST_F(Commands, ResumePassesOverADamagedCheckpoint) {
  ASSERT_EQ(run("train", "config.toml").status, 0);
  fs::resize_file(dir_ / "checkpoints/step-00000006/model.safetensors", 100);
  const Finished f = run("train", "config.toml --resume auto");
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.err.find("passing over"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("at step 4"), std::string::npos) << f.err;
  EXPECT_EQ(checkpoints(),
            (std::vector<std::string>{"step-00000004", "step-00000006", "step-00000006.damaged"}));
  expect_error("config.toml --resume checkpoints/step-00000099", 3, "step-00000099");
  expect_error("config.toml --resume checkpoints/step-00000004", 2, "holds step-00000006");
}

TEST_F(Commands, ACheckpointOfImportedWeightsHoldsThemBitwise) {
  for (const char* name : {"gpt2_tiny", "llama_tiny"}) {
    const std::string fixture = std::string(ENGINE_TEST_DIR) + "/golden/" + name;
    write("import.toml",
          "[model]\ninit = \"hf:" + fixture +
              "\"\n[batch]\nglobal = 1\n[optimizer]\nlr = 1.0\n[data]\ntrain = [\"" + fixture +
              "/tokens.bin\"]\n[train]\nsteps = 0\n[checkpoint]\ndir = \"" + name + "\"\n");
    ASSERT_EQ(run("train", "import.toml --quiet").status, 0);
    const auto in = checkpoint::SafetensorsFile::open(fixture + "/model.safetensors");
    const auto out =
        checkpoint::SafetensorsFile::open(dir_ / name / "step-00000000" / "model.safetensors");
    ASSERT_EQ(in.tensors().size(), out.tensors().size());
    for (const auto& t : in.tensors()) {
      EXPECT_EQ(out.at(t.name).shape, t.shape);
      const auto a = in.data(t.name);
      const auto b = out.data(t.name);
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << t.name;
    }
    EXPECT_EQ(run("train", "import.toml --quiet --resume auto").status, 0);  // already finished
  }
}

TEST_F(Commands, DryRunAndPrintConfigTouchNothing) {
  const Finished dry = run("train", "config.toml --dry-run");
  EXPECT_EQ(dry.status, 0) << dry.err;
  for (const char* part : {"Forward", "OptimizerStep", "activations", "together", "parameters"}) {
    EXPECT_NE(dry.out.find(part), std::string::npos) << part;
  }
  const Finished printed = run("train", "config.toml --print-config --set train.seed=5");
  EXPECT_EQ(printed.status, 0);
  EXPECT_NE(printed.out.find("seed = 5"), std::string::npos);
  EXPECT_FALSE(fs::exists(dir_ / "checkpoints"));
  EXPECT_FALSE(fs::exists(dir_ / "metrics.jsonl"));
}

TEST_F(Commands, ProfileAccountsForTheStepAndSavesNothing) {
  const Finished f = run("train", "config.toml --profile 3");
  ASSERT_EQ(f.status, 0) << f.err;
  for (const char* op : {"matmul", "attention_backward", "adamw", "other", "step", "100.0%"}) {
    EXPECT_NE(f.out.find(op), std::string::npos) << op;
  }
  EXPECT_FALSE(fs::exists(dir_ / "checkpoints"));
  EXPECT_FALSE(fs::exists(dir_ / "metrics.jsonl"));
}

TEST_F(Commands, TraceIsChromeJson) {
  ASSERT_EQ(run("train", "config.toml --quiet --trace trace.json").status, 0);
  std::ifstream file(dir_ / "trace.json");
  const auto json = nlohmann::json::parse(file);
  EXPECT_GT(json.at("traceEvents").size(), 30U);
}

TEST_F(Commands, ATerminatedRunSavesAndSaysThatItCanBeResumed) {
  const Finished f = run("train",
                         "config.toml --set train.steps=1000000 --set train.eval_every=0 --set "
                         "checkpoint.every=0",
                         "timeout --preserve-status -s TERM 2");
  EXPECT_EQ(f.status, 75) << f.err;
  EXPECT_EQ(checkpoints().size(), 1U);
  EXPECT_NE(f.err.find("stopped on request"), std::string::npos) << f.err;
}

TEST_F(Commands, BadInputGetsACodeAndOneLine) {
  expect_error("", 2, "CONFIG is required");
  expect_error("config.toml --no-such-flag", 2, "--help");
  expect_error("missing.toml", 2, "missing.toml");
  expect_error("config.toml --set train.stps=3", 2, "did you mean train.steps");
  expect_error("config.toml --set train.steps=many", 2, "train.steps");
  expect_error("config.toml --set model.heads=5", 2, "model.heads = 5");
  expect_error("config.toml --set model.vocab_size=40", 3, "train.bin");
  expect_error("config.toml --set 'data.train=[\"absent.bin\"]'", 3, "absent.bin");
  expect_error("config.toml --set model.init=hf:absent", 3, "absent");
  expect_error("config.toml --resume auto --set checkpoint.dir=''", 2, "checkpoint.dir");
  for (const int tokens : {0, 1, 16}) {
    write_tokens("train.bin", tokens);
    expect_error("config.toml", 2, "17");
  }
  write_tokens("train.bin", 17);
  EXPECT_EQ(run("train", "config.toml --quiet --set metrics.log_samples=false").status, 0);
  expect_error("config.toml", 2, "already holds a run");
  fs::remove_all(dir_ / "checkpoints");
  write_tokens("train.bin", 200, 50);
  expect_error("config.toml", 3, "50");
  write("train.bin", "odd");
  fs::remove_all(dir_ / "checkpoints");
  expect_error("config.toml", 3, "train.bin");
}

TEST_F(Commands, SetTakesOneArgumentEachTime) {
  const Finished f =
      run("train", "--set train.steps=1 config.toml --set train.seed=2 --print-config");
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("seed = 2"), std::string::npos);
  expect_error("--set train.steps=1 config.toml --set a", 2, "--set a");
}

TEST_F(Commands, AResumeThatWouldBeAnotherRunIsRefusedAndLosesNothing) {
  ASSERT_EQ(run("train", "config.toml --quiet").status, 0);
  const auto before = checkpoints();
  for (const char* change : {"model.hidden_size=64", "model.layers=1", "model.heads=2",
                             "model.tie_embeddings=false", "train.seed=9", "optimizer.name=lion",
                             "data.order=sequential", "batch.sequence_length=8"}) {
    const std::string key = std::string(change).substr(0, std::string(change).find('='));
    expect_error("config.toml --resume auto --set train.steps=8 --set " + std::string(change), 2,
                 key);
    EXPECT_EQ(checkpoints(), before) << change;
  }
  const Finished f =
      run("train", "config.toml --resume auto --set train.steps=7 --set optimizer.lr=1e-4");
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.err.find("changed since the checkpoint"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("optimizer.lr 0.003 -> 0.0001"), std::string::npos) << f.err;
  for (const auto& entry : fs::directory_iterator(dir_ / "checkpoints")) {
    if (entry.is_directory()) fs::remove(entry.path() / "optimizer.safetensors");
  }
  expect_error("config.toml --resume auto --set train.steps=9", 3, "none of its 2 checkpoints");
}

TEST_F(Commands, ResumingAFinishedRunChangesNothing) {
  ASSERT_EQ(run("train", "config.toml --quiet").status, 0);
  const auto before = checkpoints();
  EXPECT_EQ(run("train", "config.toml --quiet --resume auto").status, 0);
  EXPECT_EQ(run("train", "config.toml --quiet --resume ./checkpoints/../checkpoints/step-00000006")
                .status,
            0);
  EXPECT_EQ(checkpoints(), before);
}

TEST_F(Commands, OutputsNeverReplaceWhatIsNotTheirs) {
  write("notes.txt", "mine\n");
  expect_error("config.toml --set metrics.jsonl=notes.txt", 2, "notes.txt");
  expect_error("config.toml --trace notes.txt", 2, "notes.txt");
  expect_error("config.toml --trace absent/trace.json", 2, "absent");
  EXPECT_EQ(test::read_file(dir_ / "notes.txt"), "mine\n");
  EXPECT_EQ(run("train", "config.toml --quiet --set metrics.jsonl=/dev/null").status, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::remove_all(dir_ / "checkpoints");
  // An obstacle under a checkpoint's name is moved, a run that holds the folder is respected.
  fs::create_directories(dir_ / "checkpoints/step-00000006");
  const Finished f = run("train", "config.toml");
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.err.find("step-00000006.damaged"), std::string::npos) << f.err;
  EXPECT_TRUE(fs::exists(dir_ / "checkpoints/step-00000006/manifest.json"));
  expect_error("config.toml --resume auto", 2, "in use by another run", "flock checkpoints/.lock");
  // A second fresh run keeps the first one's records.
  fs::remove_all(dir_ / "checkpoints");
  EXPECT_EQ(run("train", "config.toml --quiet").status, 0);
  EXPECT_TRUE(fs::exists(dir_ / "metrics.jsonl.previous"));
  write("text.bin", "some text");
  EXPECT_EQ(run("prepare", "--tokenizer bytes --out . --force train.bin").status, 2);
}

TEST_F(Commands, ClosedOrFullStandardStreamsKeepTheExitCode) {
  EXPECT_EQ(run("train", "absent.toml 2>&-").status, 2);
  EXPECT_EQ(run("generate", "--checkpoint absent --prompt x 2>&-").status, 3);
  EXPECT_EQ(run("train", "config.toml --dry-run >/dev/full").status, 3);
  EXPECT_EQ(run("train", "config.toml --print-config >/dev/full").status, 3);
  EXPECT_EQ(run("train", "config.toml 2>&-").status, 0);
  for (const auto& record : metrics()) EXPECT_TRUE(record.contains("step"));
}

TEST_F(Commands, ARunThatDoesNotFitIsRefusedBeforeItStarts) {
  expect_error("config.toml --set model.hidden_size=65536 --set model.layers=100", 2, "memory");
  expect_error("config.toml --set batch.global=1000000000 --set batch.micro=1", 2, "micro-batches");
}

TEST_F(Commands, ADivergedRunEndsWithItsCode) {
  expect_error(
      "config.toml --set optimizer.lr=1e6 --set lr_schedule.kind=constant --set "
      "lr_schedule.warmup_steps=0 --set guard.max_skips=2 --set train.steps=50 --set "
      "optimizer.name=sgd --set optimizer.clip_grad_norm=0.0",
      5, "diverged");
}

TEST_F(Commands, AFullDiskIsAnErrorThatLosesNothing) {
  ASSERT_EQ(run("train", "config.toml --set train.steps=2 --set lr_schedule.decay_steps=6").status,
            0);
  // The weights alone are larger than the limit of 64 kB a file.
  expect_error("config.toml --resume auto --set metrics.jsonl=''", 3, "step-00000004",
               "ulimit -f 64; trap '' XFSZ;");
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-00000002"}));
  EXPECT_EQ(run("train", "config.toml --resume auto --quiet").status, 0);
}

TEST_F(Commands, GenerateContinuesAPromptWithTheCheckpointsTokenizer) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "abcdefgh ";
  write("corpus.txt", text);
  ASSERT_EQ(run("prepare", "--quiet --tokenizer bytes --out data corpus.txt").status, 0);
  const Finished trained =
      run("train",
          "config.toml --quiet --set model.vocab_size=257 --set 'data.train=[\"data/train.bin\"]' "
          "--set "
          "'data.valid=[\"data/val.bin\"]' --set train.steps=60 --set optimizer.lr=1e-2 --set "
          "model.dropout=0.0");
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string base =
      "--checkpoint checkpoints/step-00000060 --prompt 'abcd' --max-tokens 40 ";
  const Finished greedy = run("generate", base + "--temperature 0");
  EXPECT_EQ(greedy.status, 0) << greedy.err;
  EXPECT_NE(greedy.out.find("abcdefgh abcdefgh abcdefgh"), std::string::npos) << greedy.out;
  EXPECT_EQ(run("generate", base + "--temperature 0 --no-cache").out, greedy.out);
  EXPECT_EQ(run("generate", base + "--seed 3").out, run("generate", base + "--seed 3").out);
  EXPECT_EQ(run("generate", base + "--temperature -1").status, 2);
  EXPECT_EQ(run("generate", "--checkpoint absent --prompt x").status, 3);
  EXPECT_EQ(run("generate", "--prompt x").status, 2);
}

TEST_F(Commands, EveryCommandHasHelpAndVersion) {
  for (const char* command : {"train", "generate", "prepare"}) {
    const Finished help = run(command, "--help");
    EXPECT_EQ(help.status, 0);
    EXPECT_NE(help.out.find("--quiet"), std::string::npos) << command;
    const Finished version = run(command, "--version");
    EXPECT_EQ(version.status, 0);
    for (const char* part : {"engine ", "oneDNN ", "CUDA ", "Gloo ", "devices "}) {
      EXPECT_NE(version.out.find(part), std::string::npos) << part;
    }
  }
}

}  // namespace
}  // namespace engine

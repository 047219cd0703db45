#include "engine/train/config.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "engine/core/error.hpp"
#include "engine/train/run_plan.hpp"

namespace engine::train {
namespace {

const std::string kGood = R"([model]
family = "gpt2"
vocab_size = 257
context_length = 64
layers = 2
hidden_size = 32
heads = 4
[batch]
global = 8
[optimizer]
lr = 1e-3
[data]
train = ["none/train.bin"]
[train]
steps = 10
)";

using Set = std::pair<std::string, std::string>;

RunPlan plan_with(std::vector<Set> sets) { return resolve(parse_config(kGood, "test", sets)); }

/// The message of the error that `body` throws, which must be a user error on one line.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Errc::invalid_argument) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

void expect_error(std::vector<Set> sets, std::vector<std::string> parts) {
  const std::string text = error_of([&] { plan_with(sets); });
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" lacks \"" << part << "\"";
  }
}

TEST(Config, PrintsAsAConfigThatIsTheSame) {
  Config config = plan_with({}).config;
  config.data.train = {"a \"quoted\" name", "back\\slash", "tab\tnewline\n", "ünïcode"};
  config.optimizer.eps = 1.2345678901234567e-8;
  const std::string text = to_toml(config);
  const Config again = parse_config(text, "printed");
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.data.train, config.data.train);
  EXPECT_EQ(again.optimizer.eps, config.optimizer.eps);
}

TEST(Config, PrintsWithoutWhatIsYetToBeDerived) {
  const std::string text = to_toml(parse_config("", "test"));
  EXPECT_EQ(to_toml(parse_config(text, "again")), text);
  EXPECT_EQ(text.find("vocab_size"), std::string::npos);
}

TEST(Config, AnIntegerThatADoubleRoundsIsReadAsANumber) {
  EXPECT_EQ(parse_config("[optimizer]\nclip_grad_norm = 9007199254740993", "test")
                .optimizer.clip_grad_norm,
            9007199254740992.0);
}

TEST(Config, DerivesWhatIsLeftOut) {
  const RunPlan plan = plan_with({});
  EXPECT_EQ(plan.model.head_dim, 8);
  EXPECT_EQ(plan.model.kv_heads, 4);
  EXPECT_EQ(plan.model.ffn_size, 128);
  EXPECT_TRUE(plan.model.tie_embeddings);
  EXPECT_EQ(plan.config.batch.sequence_length, 64);
  EXPECT_EQ(plan.config.batch.micro, 8);
  EXPECT_EQ(plan.micros, 1);
  EXPECT_EQ(plan.config.optimizer.weight_decay, 0.1);
  EXPECT_EQ(plan.config.lr_schedule.decay_steps, 10);
  EXPECT_EQ(plan_with({{"optimizer.name", "sgd"}}).config.optimizer.weight_decay, 0);
  const RunPlan llama = plan_with({{"model.family", "llama"}, {"model.kv_heads", "2"}});
  EXPECT_FALSE(llama.model.tie_embeddings);
  EXPECT_EQ(llama.model.ffn_size, 128);
  EXPECT_EQ(plan_with({{"batch.micro", "2"}}).micros, 4);
}

TEST(Config, TheResolvedConfigResolvesToItself) {
  const RunPlan plan = plan_with({{"model.family", "llama"}});
  const std::string text = to_toml(plan.config);
  EXPECT_EQ(to_toml(resolve(parse_config(text, "printed")).config), text);
}

TEST(Config, OverridesTakeTomlValuesAndBareWords) {
  const auto value = [](const std::string& text) { return parse_override(text); };
  EXPECT_EQ(value("train.steps=5"), Set("train.steps", "5"));
  EXPECT_EQ(value("data.order = sequential"), Set("data.order", "sequential"));
  EXPECT_EQ(parse_config(kGood, "t", std::vector<Set>{{"data.train", "[\"x\", \"y\"]"}}).data.train,
            (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(
      parse_config(kGood, "t", std::vector<Set>{{"metrics.jsonl", "runs/a.jsonl"}}).metrics.jsonl,
      "runs/a.jsonl");
  error_of([] { parse_override("train.steps"); });
  error_of([] { parse_override("=3"); });
}

TEST(Config, AnUnknownKeyNamesFileLineAndTheNearestKey) {
  const std::string text = error_of([] { parse_config("[train]\nstpes = 3\n", "run.toml"); });
  EXPECT_NE(text.find("run.toml line 2"), std::string::npos) << text;
  EXPECT_NE(text.find("unknown key train.stpes; did you mean train.steps?"), std::string::npos)
      << text;
  EXPECT_NE(error_of([] { parse_config("learning_rate = 1\n", "c"); }).find("did you mean"),
            std::string::npos);
  EXPECT_NE(error_of([] { parse_config("[batch]\nsteps = 3\n", "c"); }).find("train.steps"),
            std::string::npos);
  EXPECT_NE(error_of([] { parse_config("[nonsense]\n", "c"); }).find("nonsense"),
            std::string::npos);
  error_of([] { parse_config("[train]\nsteps = {a = 1}\n", "c"); });
  error_of([] { parse_config("train = 3\n", "c"); });
}

TEST(Config, WrongTypesAndValuesSayWhatIsExpected) {
  expect_error({{"train.steps", "\"ten\""}}, {"train.steps", "expected an integer", "'ten'"});
  expect_error({{"train.steps", "1.5"}}, {"train.steps", "an integer", "1.5"});
  expect_error({{"optimizer.lr", "true"}}, {"optimizer.lr", "a number"});
  expect_error({{"optimizer.lr", "nan"}}, {"optimizer.lr"});
  expect_error({{"metrics.log_samples", "1"}}, {"true or false"});
  expect_error({{"data.train", "x.bin"}}, {"data.train", "a list"});
  expect_error({{"data.train", "[1]"}}, {"data.train", "a string"});
  expect_error({{"model.family", "gpt3"}}, {"\"gpt2\", \"llama\""});
  expect_error({{"model.layers", "0"}}, {"model.layers = 0", "from 1"});
  expect_error({{"model.dropout", "1.0"}}, {"model.dropout"});
  expect_error({{"train.steps", "99999999999999999999"}}, {"train.steps"});
  expect_error({{"optimizer.betas", "[0.9]"}}, {"optimizer.betas", "two"});
  expect_error({{"optimizer.betas", "[0.9, 1.5]"}}, {"betas"});
}

TEST(Config, NotTomlIsSaidWithItsPlace) {
  const std::string text = error_of([] { parse_config("[model\nx", "bad.toml"); });
  EXPECT_NE(text.find("bad.toml line 1"), std::string::npos) << text;
  error_of([] { load_config("/nonexistent/config.toml"); });
}

TEST(Config, RequiredKeysAreNamedWithAnExample) {
  for (const char* line : {"family = \"gpt2\"\n", "global = 8\n", "lr = 1e-3\n",
                           "train = [\"none/train.bin\"]\n", "steps = 10\n"}) {
    std::string text = kGood;
    text.erase(text.find(line), std::string(line).size());
    EXPECT_NE(error_of([&] { resolve(parse_config(text, "c")); }).find("is required"),
              std::string::npos);
  }
}

TEST(RunPlan, ShapesAndBatchesThatDoNotFitSayWhatWould) {
  expect_error({{"model.heads", "5"}}, {"model.heads = 5", "model.hidden_size = 32"});
  expect_error({{"model.kv_heads", "2"}}, {"kv_heads"});
  expect_error({{"model.family", "llama"}, {"model.kv_heads", "3"}}, {"kv_heads = 3", "heads = 4"});
  expect_error({{"model.family", "llama"}, {"model.head_dim", "7"}}, {"head_dim = 7", "even"});
  expect_error({{"batch.micro", "3"}}, {"batch.global = 8", "3"});
  expect_error({{"batch.sequence_length", "65"}}, {"sequence_length = 65", "context_length = 64"});
  expect_error({{"lr_schedule.min_lr", "1.0"}}, {"min_lr"});
  expect_error({{"model.init", "somewhere"}}, {"model.init", "hf:DIR"});
}

TEST(RunPlan, WhatThisVersionLacksIsRefusedByName) {
  const std::vector<Set> refused = {{"parallel.tensor", "2"},
                                    {"parallel.pipeline", "2"},
                                    {"parallel.replicate", "2"},
                                    {"memory.recompute", "selective"},
                                    {"precision.compute", "fp16"},
                                    {"precision.reduce", "fp16"},
                                    {"train.device", "cuda"},
                                    {"comm.backend", "nccl"},
                                    {"checkpoint.async", "true"},
                                    {"metrics.tensorboard", "tb"},
                                    {"emulate.compute", "sleep"},
                                    {"pipeline.schedule", "gpipe"},
                                    {"pipeline.chunks", "2"},
                                    {"precision.loss_scale", "128"},
                                    {"pipeline.layers_per_stage", "[1, 1]"}};
  for (const Set& set : refused) expect_error({set}, {set.first});
}

TEST(RunPlan, ShapeKeysThatContradictTheWeightsAreAnError) {
  const std::string init = std::string("hf:") + ENGINE_TEST_DIR + "/golden/llama_tiny";
  std::string text = kGood;
  text.replace(text.find("[model]"), text.find("[batch]"), "[model]\ninit = \"" + init + "\"\n");
  const RunPlan plan = resolve(parse_config(text, "c"));
  EXPECT_EQ(plan.model.family, nn::Family::llama);
  EXPECT_EQ(plan.model.kv_heads, 2);
  EXPECT_EQ(plan.config.batch.sequence_length, 32);
  const std::string message = error_of([&] {
    resolve(parse_config(text, "c", std::vector<Set>{{"model.layers", "5"}}));
  });
  EXPECT_NE(message.find("model.layers = 5 contradicts"), std::string::npos) << message;
}

TEST(Config, TheReferenceInTheDocsIsTheTables) {
  std::ifstream file(ENGINE_TEST_DIR "/../docs/config.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), config_reference()) << "run: train --config-reference > docs/config.md";
}

TEST(Config, TheConfigsOfTheProjectParse) {
  for (const char* name : {"quickstart.toml"}) {
    EXPECT_NO_THROW(resolve(load_config(std::string(ENGINE_TEST_DIR) + "/../configs/" + name)));
  }
}

}  // namespace
}  // namespace engine::train

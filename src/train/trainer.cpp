#include "engine/train/trainer.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>

#include "data_feed.hpp"
#include "engine/checkpoint/training_state.hpp"
#include "engine/core/atomic_file.hpp"
#include "engine/core/version.hpp"
#include "engine/data/meta.hpp"
#include "engine/nn/models.hpp"
#include "engine/ops/peak.hpp"
#include "engine/ops/profile.hpp"
#include "engine/train/metrics.hpp"
#include "engine/train/progress.hpp"
#include "hugging_face_weights.hpp"

namespace engine::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTracedSteps = 3;
constexpr int kStepsBeforeProfile = 2;

parallel::RankContext::Options rank_options(const RunPlan& plan, bool quiet) {
  parallel::RankContext::Options options;
  options.device.threads = static_cast<int>(plan.config.train.threads);
  options.device.seed = static_cast<std::uint64_t>(plan.config.train.seed);
  options.device.logger = Logger({.level = quiet ? LogLevel::warning : LogLevel::info, .sink = {}});
  return options;
}

/// One run of training on this rank.
class Run {
 public:
  Run(const RunPlan& plan, const TrainOptions& options)
      : plan_(plan),
        options_(options),
        rank_(rank_options(plan, options.quiet)),
        session_(rank_, nn::make_model(plan.model), plan.session),
        feed_(plan, session_) {}

  Outcome train() {
    if (!plan_.hugging_face.empty()) detail::load_hugging_face(session_, plan_.hugging_face);
    const Config& c = plan_.config;
    peak_gflops_ = ops::measure_peak_gflops(rank_.device());
    progress_.emplace(rank_.log(), c.train.steps, peak_gflops_, options_.quiet);
    if (options_.profile_steps > 0) return profile();
    start();
    if (!c.metrics.jsonl.empty()) metrics_.emplace(c.metrics.jsonl, info_.step);
    announce();
    if (info_.step == c.train.steps) settle(true);  // nothing left to train
    while (info_.step < c.train.steps) {
      step();
      const bool last = info_.step == c.train.steps;
      const bool stop = !last && options_.stop != nullptr && options_.stop->load();
      settle(last || stop);
      if (stop) {
        progress_->event(fmt::format("stopped on request after step {}", info_.step));
        return Outcome::stopped;
      }
    }
    finish();
    return Outcome::finished;
  }

 private:
  /// Runs a few steps with every operator timed and prints where the time went. Saves nothing.
  Outcome profile() {
    announce();
    for (int i = 0; i < kStepsBeforeProfile; ++i) step();
    double total_ms = 0;
    const ops::Profile profile(rank_.device());
    for (std::int64_t i = 0; i < options_.profile_steps; ++i) total_ms += step();
    progress_->event(fmt::format("profile of {} steps", options_.profile_steps));
    fmt::print("{}", profile.table(total_ms, options_.profile_steps, peak_gflops_));
    return Outcome::finished;
  }

  /// What is due between steps: evaluation, a checkpoint, the trace. All of it at the end.
  void settle(bool end) {
    const Config& c = plan_.config;
    const auto due = [&](std::int64_t every) { return every > 0 && info_.step % every == 0; };
    const bool finished = info_.step == c.train.steps;
    if (feed_.has_validation() && (finished || due(c.train.eval_every))) evaluate();
    if (end || due(c.checkpoint.every)) save();
    if (!options_.trace.empty() && (end || traced_ == kTracedSteps)) write_trace();
  }

  /// Decides between a fresh start and a checkpoint, and loads it.
  void start() {
    const std::string& dir = plan_.config.checkpoint.dir;
    if (options_.resume.kind == ResumeMode::Kind::path) {
      resume(options_.resume.path);
      const auto all = checkpoint::list_checkpoints(dir);
      const std::string newest = all.empty() ? "" : all.back().filename().string();
      ENGINE_CHECK(newest <= checkpoint::checkpoint_name(info_.step), Errc::invalid_argument,
                   "checkpoint.dir = {} holds {}, newer than {}: move it away, or use another "
                   "directory, so that a later --resume auto takes the right one",
                   dir, newest, options_.resume.path);
      return;
    }
    if (dir.empty()) {
      ENGINE_CHECK(options_.resume.kind == ResumeMode::Kind::none, Errc::invalid_argument,
                   "--resume auto needs checkpoint.dir: set it in the config");
      return;
    }
    const auto found = checkpoint::list_checkpoints(dir);
    if (options_.resume.kind == ResumeMode::Kind::none) {
      ENGINE_CHECK(found.empty(), Errc::invalid_argument,
                   "checkpoint.dir = {} already holds a run ({}): use --resume auto, or another "
                   "directory",
                   dir, found.empty() ? "" : found.back().filename().string());
    } else {
      for (auto path = found.rbegin(); path != found.rend(); ++path) {
        try {
          return resume(*path);
        } catch (const Error& e) {
          if (e.code() != Errc::corrupt_data && e.code() != Errc::io) throw;
          rank_.log().warning("passing over {} (kept as {}.damaged): {}", path->string(),
                              path->filename().string(), e.what());
          set_aside(*path);
        }
      }
    }
    fs::create_directories(dir);
    write_file(fs::path(dir) / "config.toml", to_toml(plan_.config));
  }

  /// Renames a damaged checkpoint, so that neither `keep` nor a later resume counts it.
  static void set_aside(const fs::path& path) {
    const fs::path aside = path.string() + ".damaged";
    std::error_code error;
    fs::remove_all(aside, error);
    fs::rename(path, aside, error);
    ENGINE_CHECK(!error, Errc::io, "cannot rename {} to {}: {}", path.string(), aside.string(),
                 error.message());
  }

  void resume(const fs::path& path) {
    info_ = session_.load(path.string());
    ENGINE_CHECK(info_.seed == plan_.config.train.seed, Errc::invalid_argument,
                 "{} was made with train.seed = {}, the config says {}: sample order and dropout "
                 "would not continue",
                 path.string(), info_.seed, plan_.config.train.seed);
    ENGINE_CHECK(info_.step <= plan_.config.train.steps, Errc::invalid_argument,
                 "{} is at step {}, past train.steps = {}: raise train.steps", path.string(),
                 info_.step, plan_.config.train.steps);
    rank_.log().info("resumed from {} at step {}", path.string(), info_.step);
  }

  void announce() {
    const Config& c = plan_.config;
    progress_->event(fmt::format(
        "{} {} parameters, {} samples of {} tokens, {} sequences a step in {} micro-batch{} of {}, "
        "{} {}, {} thread{}",
        c.model.family, format_count(static_cast<double>(session_.parameter_count())),
        feed_.dataset().samples(), c.batch.sequence_length, c.batch.global, plan_.micros,
        plan_.micros == 1 ? "" : "es", c.batch.micro, c.precision.compute, c.optimizer.name,
        rank_.device().pool().threads(), rank_.device().pool().threads() == 1 ? "" : "s"));
  }

  /// One training step; returns its milliseconds.
  double step() {
    const Config& c = plan_.config;
    StepRecord record;
    const auto micros =
        feed_.train(info_.consumed_samples, c.metrics.log_samples ? &record.sample_ids : nullptr);
    record.step = info_.step;
    record.lr = plan_.schedule.at(info_.step);
    program::Trace* trace = !options_.trace.empty() && traced_ < kTracedSteps ? &trace_ : nullptr;
    const double flops_before = rank_.device().counters().matmul_flops;
    const auto begin = std::chrono::steady_clock::now();
    const StepResult result = session_.step(micros, record.lr, trace);
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - begin;
    if (trace != nullptr) ++traced_;

    const std::int64_t step_tokens = c.batch.global * c.batch.sequence_length;
    info_.step += 1;
    info_.consumed_samples += c.batch.global;
    info_.tokens += step_tokens;
    record.loss = result.loss;
    record.grad_norm = result.grad_norm;
    record.tokens = info_.tokens;
    record.samples = info_.consumed_samples;
    record.targets = result.targets;
    record.skipped = result.skipped;
    record.step_ms = elapsed.count();
    record.tokens_per_s = static_cast<double>(step_tokens) / elapsed.count() * 1e3;
    record.mem_peak_bytes = rank_.device().memory().stats().total.peak_bytes;
    if (metrics_) metrics_->write(record);
    const double flops = rank_.device().counters().matmul_flops - flops_before;
    progress_->step(record, flops / elapsed.count() / 1e6);
    guard(record);
    return record.step_ms;
  }

  /// Counts skipped steps in a row and ends a run that does not recover.
  void guard(const StepRecord& record) {
    const bool non_finite = record.skipped && record.targets > 0;
    skips_ = non_finite ? skips_ + 1 : 0;
    if (!non_finite) return;
    progress_->event(fmt::format("step {} skipped: loss {}, gradient norm {}", record.step + 1,
                                 record.loss, record.grad_norm));
    ENGINE_CHECK(skips_ <= plan_.config.guard.max_skips, Errc::diverged,
                 "training diverged: {} steps in a row with a non-finite loss or gradient (last: "
                 "step {}): lower optimizer.lr or resume from an earlier checkpoint",
                 skips_, record.step + 1);
  }

  void evaluate() {
    double loss = 0;
    std::int64_t targets = 0;
    for (std::int64_t i = 0; i < feed_.validation_batches(); ++i) {
      const Session::EvalResult result = session_.evaluate(feed_.validation(i));
      loss += result.loss * static_cast<double>(result.targets);
      targets += result.targets;
    }
    eval_loss_ = targets > 0 ? loss / static_cast<double>(targets) : std::nan("");
    if (metrics_) metrics_->write_evaluation(info_.step - 1, *eval_loss_);
    progress_->event(fmt::format("step {}  eval loss {:.4f}", info_.step, *eval_loss_));
  }

  void save() {
    const Config& c = plan_.config;
    if (c.checkpoint.dir.empty()) return;
    checkpoint::RunInfo info = info_;
    info.config = to_toml(c);
    info.model = plan_.model;
    if (const auto meta = data::read_meta(c.data.train.front())) {
      info.tokenizer = meta->tokenizer_directory;
    }
    const fs::path path = fs::path(c.checkpoint.dir) / checkpoint::checkpoint_name(info.step);
    if (fs::exists(path)) return;  // resumed at this step
    session_.save(path.string(), info);
    progress_->event(fmt::format("saved {}", path.string()));
    auto all = checkpoint::list_checkpoints(c.checkpoint.dir);
    for (std::size_t i = 0; i + static_cast<std::size_t>(c.checkpoint.keep) < all.size(); ++i) {
      fs::remove_all(all[i]);
    }
  }

  void write_trace() {
    if (trace_.events.empty()) return;
    trace_.write(options_.trace, session_.model_info());
    progress_->event(fmt::format("trace of {} steps in {}", traced_, options_.trace));
    trace_.events.clear();
  }

  void finish() {
    const MemoryStats memory = rank_.device().memory().stats();
    std::string text = fmt::format("done: {} steps, {} tokens", info_.step,
                                   format_count(static_cast<double>(info_.tokens)));
    if (eval_loss_) text += fmt::format(", eval loss {:.4f}", *eval_loss_);
    text += ", peak memory";
    for (int i = 0; i < kCategories; ++i) {
      const auto& usage = memory.categories[static_cast<std::size_t>(i)];
      if (usage.peak_bytes == 0) continue;
      text += fmt::format(" {} {}", name(static_cast<Category>(i)),
                          format_bytes(static_cast<double>(usage.peak_bytes)));
    }
    progress_->event(text);
  }

  const RunPlan& plan_;
  const TrainOptions& options_;
  parallel::RankContext rank_;
  Session session_;
  detail::DataFeed feed_;
  std::optional<Progress> progress_;
  std::optional<MetricsFile> metrics_;
  checkpoint::RunInfo info_;
  std::optional<double> eval_loss_;
  double peak_gflops_ = 0;
  program::Trace trace_;
  std::int64_t traced_ = 0;
  std::int64_t skips_ = 0;
};

}  // namespace

ResumeMode ResumeMode::parse(const std::string& text) {
  if (text == "none") return {};
  if (text == "auto") return {Kind::automatic, {}};
  return {Kind::path, text};
}

Outcome train(const RunPlan& plan, const TrainOptions& options) {
  return Run(plan, options).train();
}

std::string describe(const RunPlan& plan) {
  const Config& c = plan.config;
  parallel::RankContext::Options options = rank_options(plan, true);
  options.device.device.type = DeviceType::meta;
  parallel::RankContext rank(options);
  Session session(rank, nn::make_model(plan.model), plan.session);
  std::vector<nn::MicroBatch> micros;
  for (int m = 0; m < plan.micros; ++m) {
    micros.push_back(session.make_batch(c.batch.micro, c.batch.sequence_length));
  }
  session.step(micros, plan.schedule.at(0));
  const MemoryStats memory = rank.device().memory().stats();
  std::string text = fmt::format(
      "model        {}: {} layers, hidden {}, {} heads ({} KV) of {}, vocabulary {}\n"
      "parameters   {}\n"
      "batch        {} sequences of {} tokens a step: {} micro-batches of {}\n"
      "work         {:.1f} GFLOP a step in matrix products\n\nstep program\n",
      c.model.family, c.model.layers, c.model.hidden_size, c.model.heads, c.model.kv_heads,
      c.model.head_dim, c.model.vocab_size, session.parameter_count(), c.batch.global,
      c.batch.sequence_length, plan.micros, c.batch.micro,
      rank.device().counters().matmul_flops / 1e9);
  text += session.step_program(plan.micros).summary(session.model_info());
  text += "\nmemory       predicted peak\n";
  for (int i = 0; i < kCategories; ++i) {
    const auto& usage = memory.categories[static_cast<std::size_t>(i)];
    text += fmt::format("{:<13}{:>10}\n", name(static_cast<Category>(i)),
                        format_bytes(static_cast<double>(usage.peak_bytes)));
  }
  text += fmt::format("{:<13}{:>10}\n", "together",
                      format_bytes(static_cast<double>(memory.total.peak_bytes)));
  return text;
}

}  // namespace engine::train

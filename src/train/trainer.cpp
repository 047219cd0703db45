#include "engine/train/trainer.hpp"

#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>

#include "checkpoint_folder.hpp"
#include "data_feed.hpp"
#include "engine/checkpoint/training_state.hpp"
#include "engine/comm/exchange.hpp"
#include "engine/core/atomic_file.hpp"
#include "engine/core/version.hpp"
#include "engine/data/meta.hpp"
#include "engine/nn/models.hpp"
#include "engine/ops/peak.hpp"
#include "engine/ops/profile.hpp"
#include "engine/train/metrics.hpp"
#include "engine/train/progress.hpp"
#include "hugging_face_weights.hpp"
#include "prediction.hpp"
#include "ranks.hpp"
#include "resume_check.hpp"

namespace engine::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTracedSteps = 3;
constexpr int kStepsBeforeProfile = 2;
constexpr std::string_view kTraceBegin = "{\"traceEvents\"";

/// One run of training on one rank. Rank 0 speaks, writes and decides; the others follow.
class Run {
 public:
  Run(const RunPlan& plan, const TrainOptions& options, comm::World& world)
      : plan_(plan),
        options_(options),
        leads_(world.rank() == 0),
        rank_(detail::rank_options(plan, world.rank(), options.quiet), world),
        session_(rank_, nn::make_model(plan.model), plan.session),
        feed_(plan, session_) {
    if (const auto meta = data::read_meta(plan.config.data.train.front())) {
      tokenizer_ = checkpoint::read_folder(meta->tokenizer_directory);
    }
  }

  Outcome train() {
    try {
      return train_all();
    } catch (const std::exception& error) {
      rank_.world().abort(error.what());  // before anything waits for peers on the way out
      throw;
    }
  }

 private:
  Outcome train_all() {
    require_equal_configs();
    if (leads_) check_outputs();
    if (!plan_.hugging_face.empty()) detail::load_hugging_face(session_, plan_.hugging_face);
    const Config& c = plan_.config;
    if (leads_) peak_gflops_ = ops::measure_peak_gflops(rank_.device()) * plan_.mesh.size();
    progress_.emplace(rank_.log(), c.train.steps, peak_gflops_, options_.quiet || !leads_);
    if (options_.profile_steps > 0) return profile();
    start();
    if (leads_ && !c.metrics.jsonl.empty()) metrics_.emplace(c.metrics.jsonl, info_.step);
    announce();
    if (info_.step == c.train.steps) settle(true);  // nothing left to train
    while (info_.step < c.train.steps) {
      step();
      const bool last = info_.step == c.train.steps;
      const bool stop = !last && requested();
      settle(last || stop);
      if (stop) {
        progress_->event(fmt::format("stopped on request after step {}{}", info_.step,
                                     folder_ ? "" : "; nothing saved: checkpoint.dir is not set"));
        return Outcome::stopped;
      }
    }
    finish();
    return Outcome::finished;
  }

  /// Ranks in different processes read their own copies of the config.
  void require_equal_configs() {
    const auto hashes =
        comm::exchange(rank_.control(), std::hash<std::string>{}(to_toml(plan_.config)));
    for (std::size_t r = 1; r < hashes.size(); ++r) {
      ENGINE_CHECK(hashes[r] == hashes[0], Errc::invalid_argument,
                   "rank {} has another config than rank 0: start all ranks with the same file and "
                   "the same --set",
                   r);
    }
  }

  /// Whether any rank was told to stop.
  bool requested() {
    const bool here = options_.stop != nullptr && options_.stop->load();
    return comm::exchange_sum(rank_.control(), static_cast<int>(here)) > 0;
  }

  /// Refuses to write over what is not ours to replace.
  void check_outputs() const {
    const Config& c = plan_.config;
    if (options_.trace.empty()) return;
    std::error_code ignored;
    const fs::path parent = fs::absolute(options_.trace).parent_path();
    ENGINE_CHECK(fs::is_directory(parent, ignored), Errc::invalid_argument,
                 "--trace {}: there is no directory {}", options_.trace, parent.string());
    ENGINE_CHECK(options_.trace != c.metrics.jsonl, Errc::invalid_argument,
                 "--trace and metrics.jsonl are the same file {}: choose two", options_.trace);
    if (!fs::exists(options_.trace, ignored)) return;
    std::ifstream file(options_.trace, std::ios::binary);
    std::string begin(kTraceBegin.size(), '\0');
    file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
    ENGINE_CHECK(fs::is_regular_file(options_.trace, ignored) && begin == kTraceBegin,
                 Errc::invalid_argument,
                 "--trace {}: the file exists and is no trace: choose another name",
                 options_.trace);
  }

  /// Runs a few steps with every operator timed and prints where the time went. Saves nothing.
  Outcome profile() {
    announce();
    for (int i = 0; i < kStepsBeforeProfile; ++i) step();
    double total_ms = 0;
    const ops::Profile profile(rank_.device());
    for (std::int64_t i = 0; i < options_.profile_steps; ++i) total_ms += step();
    progress_->event(fmt::format("profile of {} steps", options_.profile_steps));
    if (leads_) {
      fmt::print("{}",
                 profile.table(total_ms, options_.profile_steps, peak_gflops_ / plan_.mesh.size()));
    }
    return Outcome::finished;
  }

  /// What is due between steps: evaluation, a checkpoint, the trace. All of it at the end.
  void settle(bool end) {
    const Config& c = plan_.config;
    const int broken = static_cast<int>(metrics_error_ != nullptr);
    if (comm::exchange_sum(rank_.control(), broken) > 0) {
      save();
      if (metrics_error_) std::rethrow_exception(metrics_error_);
      ENGINE_FAIL(Errc::peer_lost, "rank 0 cannot write {}", c.metrics.jsonl);
    }
    const auto due = [&](std::int64_t every) { return every > 0 && info_.step % every == 0; };
    const bool finished = info_.step == c.train.steps;
    if (feed_.has_validation() && (finished || due(c.train.eval_every))) evaluate();
    if (end || due(c.checkpoint.every)) save();
    if (!options_.trace.empty() && (end || traced_ == kTracedSteps)) write_trace();
  }

  /// Decides between a fresh start and a checkpoint, and loads it.
  void start() {
    const Config& c = plan_.config;
    const ResumeMode& mode = options_.resume;
    if (leads_ && !c.checkpoint.dir.empty()) folder_.emplace(c.checkpoint.dir, rank_.log());
    const std::string path = comm::share_text(rank_.control(), leads_ ? choose_start() : "");
    if (!path.empty()) resume(path);
    if (!folder_) return;
    if (mode.kind == ResumeMode::Kind::path) folder_->require_continues(path, info_.step);
    if (mode.kind != ResumeMode::Kind::none) folder_->resumed_at(info_.step);
    write_file(fs::path(c.checkpoint.dir) / "resolved.toml", to_toml(c));
  }

  /// The checkpoint to go on from, or nothing.
  std::string choose_start() {
    const ResumeMode& mode = options_.resume;
    if (mode.kind == ResumeMode::Kind::path) return mode.path;
    if (mode.kind == ResumeMode::Kind::automatic) {
      ENGINE_CHECK(folder_.has_value(), Errc::invalid_argument,
                   "--resume auto needs checkpoint.dir: set it in the config");
      return folder_->newest().value_or(fs::path()).string();
    }
    if (folder_) folder_->require_empty();
    return {};
  }

  void resume(const std::string& path) {
    const checkpoint::RunInfo saved = checkpoint::read_run_info(path);
    if (!saved.config.empty()) {
      const std::string changed = detail::check_resumed_config(
          path, parse_config(saved.config, path + "/manifest.json"), plan_.config);
      if (leads_ && !changed.empty()) {
        rank_.log().warning("changed since the checkpoint: {}", changed);
      }
    }
    ENGINE_CHECK(saved.step <= plan_.config.train.steps, Errc::invalid_argument,
                 "{} is at step {}, past train.steps = {}: raise train.steps", path, saved.step,
                 plan_.config.train.steps);
    info_ = session_.load(path);
    rank_.log().info("resumed from {} at step {}", path, info_.step);
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
    if (rank_.world_size() > 1) {
      const Config::Parallel& p = c.parallel;
      progress_->event(fmt::format(
          "{} ranks over {}: data {}{}, ZeRO stage {}", rank_.world_size(), rank_.world().backend(),
          p.data, p.replicate > 1 ? fmt::format(" ({} replicas)", p.replicate) : "", p.zero_stage));
    }
  }

  /// One training step; returns its milliseconds.
  double step() {
    const Config& c = plan_.config;
    StepRecord record;
    const auto micros = feed_.train(info_.consumed_samples,
                                    leads_ && c.metrics.log_samples ? &record.sample_ids : nullptr);
    record.step = info_.step;
    record.lr = plan_.schedule.at(info_.step);
    program::Trace* trace = !options_.trace.empty() && traced_ < kTracedSteps ? &trace_ : nullptr;
    const double flops_before = rank_.device().counters().matmul_flops;
    const std::int64_t sent_before = rank_.sent_bytes();
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
    const Usage own = {rank_.device().memory().stats().total.peak_bytes,
                       rank_.sent_bytes() - sent_before,
                       rank_.device().counters().matmul_flops - flops_before, result.exposed_ms};
    double flops = 0;
    for (const Usage& usage : comm::exchange(rank_.control(), own)) {
      record.mem_peak_bytes = std::max(record.mem_peak_bytes, usage.peak_bytes);
      record.comm_bytes += usage.sent_bytes;
      record.comm_exposed_ms = std::max(record.comm_exposed_ms, usage.exposed_ms);
      flops += usage.flops;
    }
    write_metrics([&](MetricsFile& file) { file.write(record); });
    progress_->step(record, flops / elapsed.count() / 1e6);
    guard(record);
    return record.step_ms;
  }

  /// Counts skipped steps in a row and ends a run that does not recover.
  void guard(const StepRecord& record) {
    if (record.targets == 0) {
      progress_->event(fmt::format("step {} skipped: all its targets are data.ignore_token = {}",
                                   record.step + 1, plan_.config.data.ignore_token));
    }
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
    write_metrics([&](MetricsFile& file) { file.write_evaluation(info_.step - 1, *eval_loss_); });
    progress_->event(fmt::format("step {}  eval loss {:.4f}", info_.step, *eval_loss_));
  }

  /// Collective.
  void save() {
    const bool needed = folder_ && folder_->needs(info_.step);
    if (comm::exchange_sum(rank_.control(), static_cast<int>(needed)) == 0) return;
    if (!leads_) return session_.save({}, info_);
    checkpoint::RunInfo info = info_;
    info.config = to_toml(plan_.config);
    info.model = plan_.model;
    info.tokenizer = tokenizer_;
    const fs::path path = folder_->save(session_, std::move(info), plan_.config.checkpoint.keep);
    progress_->event(fmt::format("saved {}", path.string()));
  }

  /// A record that cannot be written ends the run, but not before its state is safe (`settle`).
  template <class Write>
  void write_metrics(Write&& write) {
    if (!metrics_ || metrics_error_) return;
    try {
      write(*metrics_);
    } catch (const Error&) {
      metrics_error_ = std::current_exception();
    }
  }

  /// Collective.
  void write_trace() {
    if (trace_.events.empty()) return;
    std::vector<program::Trace> traces;
    for (auto& events : comm::exchange_lists(rank_.control(), trace_.events)) {
      traces.push_back({static_cast<int>(traces.size()), std::move(events)});
    }
    trace_.events.clear();
    if (!leads_) return;
    write_file(options_.trace, program::to_json(traces, session_.model_info()));
    progress_->event(fmt::format("trace of {} steps in {}", traced_, options_.trace));
  }

  void finish() {
    ENGINE_CHECK(
        skips_ == 0, Errc::diverged,
        "training diverged: the last {} steps were skipped for a non-finite loss or gradient: "
        "lower optimizer.lr or resume from an earlier checkpoint",
        skips_);
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

  /// What a rank used in a step.
  struct Usage {
    std::int64_t peak_bytes;
    std::int64_t sent_bytes;
    double flops;
    double exposed_ms;
  };

  const RunPlan& plan_;
  const TrainOptions& options_;
  bool leads_;
  parallel::RankContext rank_;
  Session session_;
  detail::DataFeed feed_;
  std::optional<Progress> progress_;
  std::optional<MetricsFile> metrics_;
  std::exception_ptr metrics_error_;
  std::optional<detail::CheckpointFolder> folder_;
  std::vector<checkpoint::TextFile> tokenizer_;
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
  const std::int64_t needed =
      detail::predict(plan).memory.total.peak_bytes * detail::local_ranks(plan);
  const std::int64_t available = detail::available_memory_bytes();
  ENGINE_CHECK(available == 0 || needed <= available, Errc::out_of_memory,
               "the run needs {} of memory, {} are available: use a smaller batch.micro, "
               "memory.recompute = \"full\", precision.compute = \"bf16\" or a smaller model (see "
               "--dry-run)",
               format_bytes(static_cast<double>(needed)),
               format_bytes(static_cast<double>(available)));
  Outcome outcome = Outcome::finished;
  detail::run_ranks(plan, [&](comm::World& world) {
    const Outcome mine = Run(plan, options, world).train();
    if (world.rank() == 0 || detail::local_ranks(plan) == 1) outcome = mine;
  });
  return outcome;
}

}  // namespace engine::train

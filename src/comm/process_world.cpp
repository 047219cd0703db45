#include "process_world.hpp"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>

namespace engine::comm {
namespace detail {
namespace {

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

/// Our store as Gloo wants it, under a prefix.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(StoreClient& store, std::string prefix, double timeout_s)
      : store_(&store), prefix_(std::move(prefix)), timeout_s_(timeout_s) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set(prefix_ + key, {data.data(), data.size()});
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_->get(prefix_ + key, timeout_s_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) store_->get(prefix_ + key, timeout_s_);
  }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& /*timeout*/) override {
    wait(keys);
  }

 private:
  StoreClient* store_;
  std::string prefix_;
  double timeout_s_;
};

std::string joined_key(int rank) { return fmt::format("joined/{}", rank); }

}  // namespace

ProcessLink::ProcessLink(const LaunchInfo& launch, const Timeouts& timeouts)
    : rank_(launch.rank), size_(launch.world_size), timeouts_(timeouts) {
  if (rank_ == 0) {
    server_ = std::make_unique<StoreServer>(launch.master_port, size_, timeouts.collective_s);
  }
  store_ = std::make_unique<StoreClient>(launch.master_host, launch.master_port, rank_, size_,
                                         timeouts.startup_s);
  thread_ = std::thread([this] { monitor(); });
  try {
    wait_for_all_ranks();
    gloo::transport::tcp::attr attr;
    attr.hostname = store_->local_address();
    device_ = gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& error) {
    abort(error.what());
    {
      const std::scoped_lock lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    thread_.join();
    throw;
  }
}

ProcessLink::~ProcessLink() {
  {
    const std::scoped_lock lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ProcessLink::wait_for_all_ranks() {
  const auto begin = SteadyClock::now();
  store_->set(joined_key(rank_), "");
  std::string missing;
  for (int r = 0; r < size_; ++r) {
    const std::chrono::duration<double> waited = SteadyClock::now() - begin;
    try {
      store_->get(joined_key(r), std::max(0.05, timeouts_.startup_s - waited.count()));
    } catch (const Error& error) {
      check();
      if (error.code() != Errc::timeout) throw;
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
    }
  }
  ENGINE_CHECK(missing.empty(), Errc::timeout,
               "rank{} {} of {} did not appear within {:.0f} s: start all ranks, or raise "
               "comm.startup_timeout_s",
               missing.find(',') == std::string::npos ? "" : "s", missing, size_,
               timeouts_.startup_s);
}

std::shared_ptr<gloo::Context> ProcessLink::connect(const Group& group) {
  check();
  std::string prefix = group.name;
  for (const int member : group.members) prefix += fmt::format(",{}", member);
  auto context = std::make_shared<gloo::rendezvous::Context>(group.rank, group.size());
  context->setTimeout(to_ms(timeouts_.startup_s));
  GlooStore store(*store_, prefix + "/", timeouts_.startup_s);
  try {
    context->connectFullMesh(store, device_);
  } catch (const std::exception& error) {
    explain({group.name, "connecting group " + group.name, group.members, false}, error.what());
  }
  context->setTimeout(to_ms(timeouts_.collective_s));
  contexts_.push_back(context);
  return context;
}

void ProcessLink::enter(const std::string& group, std::int64_t sequence, const Call& call) {
  check();
  const std::scoped_lock lock(mutex_);
  statuses_[group] = {sequence, call};
}

void ProcessLink::check() const {
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::scoped_lock lock(mutex_);
  throw Error(failure_->code, failure_->message);
}

void ProcessLink::explain(const Report& report, const std::string& what) {
  constexpr double kPatienceS = 5;  // a lost rank is known sooner
  const auto begin = SteadyClock::now();
  std::unique_lock lock(mutex_);
  while (!failure_ &&
         std::chrono::duration<double>(SteadyClock::now() - begin).count() < kPatienceS) {
    requests_.push_back({[report](StoreClient& store, double timeout_s) {
      return store.report(report, timeout_s);
    }});
    const std::int64_t mine = ++asked_;
    changed_.notify_all();
    changed_.wait_for(lock, to_ms(kPatienceS), [&] { return failure_ || answered_ >= mine; });
    if (!failure_) changed_.wait_for(lock, to_ms(0.1), [&] { return failure_.has_value(); });
  }
  if (failure_) throw Error(failure_->code, failure_->message);
  ENGINE_FAIL(Errc::peer_lost, "{}: {}", report.where, what);
}

void ProcessLink::abort(const std::string& reason) noexcept {
  try {
    std::unique_lock lock(mutex_);
    if (failure_) return;
    requests_.push_back({[reason](StoreClient& store, double timeout_s) {
      return store.abort(reason, timeout_s);
    }});
    const std::int64_t mine = ++asked_;
    changed_.notify_all();
    changed_.wait_for(lock, to_ms(3), [&] { return answered_ >= mine || failure_; });
  } catch (...) {  // peers will see the connection close
  }
}

void ProcessLink::add(gloo::transport::UnboundBuffer& buffer) {
  const std::scoped_lock lock(mutex_);
  waiting_.insert(&buffer);
  if (!failure_) return;
  buffer.abortWaitRecv();
  buffer.abortWaitSend();
}

void ProcessLink::remove(gloo::transport::UnboundBuffer& buffer) {
  const std::scoped_lock lock(mutex_);
  waiting_.erase(&buffer);
}

std::vector<GroupStatus> ProcessLink::statuses() const {
  std::vector<GroupStatus> list;
  for (const auto& [group, status] : statuses_) {
    list.push_back({group, status.sequence, status.call.str()});
  }
  return list;
}

void ProcessLink::fail(const WorldFailure& failure) {
  const std::scoped_lock lock(mutex_);
  if (failure_) return;
  failure_ = failure;
  failed_.store(true, std::memory_order_release);
  for (gloo::transport::UnboundBuffer* buffer : waiting_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
  changed_.notify_all();
}

void ProcessLink::learn(const StoreClient::Answer& answer) {
  if (answer.failure) fail(*answer.failure);
}

void ProcessLink::monitor() {
  constexpr double kFarewellS = 5;
  const double answer_s = std::max(2.0, timeouts_.collective_s);
  const double period_s = std::min(0.5, timeouts_.collective_s / 10);
  std::optional<SteadyClock::time_point> left;
  std::unique_lock lock(mutex_);
  try {
    for (;;) {
      changed_.wait_for(lock, to_ms(left ? 0.02 : period_s),
                        [&] { return !requests_.empty() || (leaving_ && !left); });
      const std::vector<Request> requests = std::exchange(requests_, {});
      const std::vector<GroupStatus> now = statuses();
      const bool leave = leaving_ && !left;
      lock.unlock();
      StoreClient::Answer answer = store_->beat(now, answer_s);
      learn(answer);
      for (const Request& request : requests) learn(request.ask(*store_, answer_s));
      if (leave) answer = store_->leave(answer_s);
      lock.lock();
      answered_ += static_cast<std::int64_t>(requests.size());
      changed_.notify_all();
      if (leave) left = SteadyClock::now();
      if (!left) continue;
      const std::chrono::duration<double> waited = SteadyClock::now() - *left;
      if (answer.all_left || failure_ || waited.count() > kFarewellS) return;
    }
  } catch (const Error& error) {  // rank 0 does not answer
    if (!lock.owns_lock()) lock.lock();
    const bool over = left.has_value();
    lock.unlock();
    if (!over) fail({error.code(), error.what()});
    lock.lock();
    answered_ = asked_;
    changed_.notify_all();
    // Nobody is left to talk to: only the end is waited for.
    changed_.wait(lock, [&] { return leaving_; });
  }
}

}  // namespace detail

namespace {

class ProcessWorld final : public World {
 public:
  ProcessWorld(const LaunchInfo& launch, const Timeouts& timeouts)
      : rank_(launch.rank), size_(launch.world_size), link_(launch, timeouts) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::string_view backend() const noexcept override { return "gloo"; }
  void abort(const std::string& reason) noexcept override { link_.abort(reason); }

 private:
  std::unique_ptr<Transport> connect(const Group& group) override {
    return detail::make_gloo_transport(link_, group);
  }

  int rank_;
  int size_;
  detail::ProcessLink link_;
};

}  // namespace

std::unique_ptr<World> join_processes(const LaunchInfo& launch, const Timeouts& timeouts) {
  if (launch.world_size == 1) return make_single_world();
  return std::make_unique<ProcessWorld>(launch, timeouts);
}

}  // namespace engine::comm

#include "engine/core/lane.hpp"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace engine {

struct Event::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;

  void complete(std::exception_ptr failure) {
    const std::scoped_lock lock(mutex);
    error = std::move(failure);
    done = true;
    changed.notify_all();
  }
};

bool Event::done() const noexcept {
  if (!state_) return true;
  const std::scoped_lock lock(state_->mutex);
  return state_->done;
}

void Event::wait() const {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->done; });
  if (state_->error) std::rethrow_exception(state_->error);
}

struct Lane::State {
  struct Item {
    std::function<void()> work;
    std::vector<Event> after;
    std::shared_ptr<Event::State> event;
  };

  std::string name;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> items;
  bool stop = false;
  std::exception_ptr broken;  // the lane's thread alone writes it; an inline lane's submitter
  std::shared_ptr<Event::State> last;
  std::thread thread;

  void run() {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    for (;;) {
      Item item;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return stop || !items.empty(); });
        if (items.empty()) return;
        item = std::move(items.front());
        items.pop_front();
      }
      run_item(item);
      item.work = nullptr;
      item.after.clear();
      item.event->complete(broken);
    }
  }

  void run_item(const Item& item) {
    if (broken) return;
    try {
      for (const Event& event : item.after) event.wait();
      item.work();
    } catch (...) {
      broken = std::current_exception();
    }
  }
};

Lane::Lane() : state_(std::make_unique<State>()) { state_->name = "inline"; }

Lane::Lane(std::string name) : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Lane::~Lane() {
  if (!state_->thread.joinable()) return;
  {
    const std::scoped_lock lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

Event Lane::submit(std::function<void()> work, std::vector<Event> after) {
  State& s = *state_;
  if (!s.thread.joinable() || s.thread.get_id() == std::this_thread::get_id()) {
    if (s.broken) std::rethrow_exception(s.broken);
    try {
      for (const Event& event : after) event.wait();
      work();
    } catch (...) {
      if (!s.thread.joinable()) s.broken = std::current_exception();
      throw;
    }
    return {};
  }
  auto event = std::make_shared<Event::State>();
  {
    const std::scoped_lock lock(s.mutex);
    s.items.push_back({std::move(work), std::move(after), event});
    s.last = event;
  }
  s.changed.notify_one();
  return Event(std::move(event));
}

void Lane::drain() {
  std::shared_ptr<Event::State> last;
  {
    const std::scoped_lock lock(state_->mutex);
    last = state_->last;
  }
  Event(std::move(last)).wait();
}

bool Lane::idle() const noexcept {
  const std::scoped_lock lock(state_->mutex);
  return Event(state_->last).done();
}

bool Lane::threaded() const noexcept { return state_->thread.joinable(); }

const std::string& Lane::name() const noexcept { return state_->name; }

}  // namespace engine

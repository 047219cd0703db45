#include "store.hpp"

namespace engine::comm::detail {
namespace {

SteadyClock::time_point in(double seconds) {
  return SteadyClock::now() +
         std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
}

MessageWriter begin(Request request) {
  MessageWriter writer;
  writer.add(static_cast<std::int64_t>(request));
  return writer;
}

}  // namespace

StoreClient::StoreClient(const std::string& host, int port, int rank, int world_size,
                         double startup_s) {
  const auto deadline = in(startup_s);
  for (Line* line : {&keys_, &monitor_}) {
    line->socket = connect_to(host, port, deadline);
    const std::string refusal =
        MessageReader(ask(*line,
                          begin(Request::hello)
                              .add(kStoreProtocol)
                              .add(rank)
                              .add(world_size)
                              .add(static_cast<std::int64_t>(line == &monitor_))
                              .text(),
                          startup_s))
            .string();
    ENGINE_CHECK(refusal.empty(), Errc::invalid_argument, "{}", refusal);
  }
}

std::string StoreClient::ask(Line& line, const std::string& message, double timeout_s) {
  const std::scoped_lock lock(line.mutex);
  const auto deadline = in(timeout_s);
  send_message(line.socket, message, deadline);
  return receive_message(line.socket, line.buffer, deadline);
}

void StoreClient::set(const std::string& key, std::string_view value) {
  constexpr double kAnswerS = 30;
  ask(keys_, begin(Request::set).add(key).add(value).text(), kAnswerS);
}

std::string StoreClient::get(const std::string& key, double timeout_s) {
  return ask(keys_, begin(Request::get).add(key).text(), timeout_s);
}

StoreClient::Answer StoreClient::ask_monitor(const std::string& message, double timeout_s) {
  std::string reply;
  try {
    reply = ask(monitor_, message, timeout_s);
  } catch (const Error& error) {
    ENGINE_FAIL(Errc::peer_lost, "rank 0 {}",
                error.code() == Errc::timeout
                    ? fmt::format("has not answered for {:.1f} s: it is stopped, or its host hangs",
                                  timeout_s)
                    : "is gone: its process ended or its host was lost");
  }
  MessageReader reader(reply);
  Answer answer;
  answer.all_left = reader.integer() != 0;
  if (!reader.at_end()) {
    const auto code = static_cast<Errc>(reader.integer());
    answer.failure = WorldFailure{code, reader.string()};
  }
  return answer;
}

StoreClient::Answer StoreClient::beat(const std::vector<GroupStatus>& statuses, double timeout_s) {
  MessageWriter writer = begin(Request::beat);
  for (const GroupStatus& s : statuses) writer.add(s.group).add(s.sequence).add(s.call);
  return ask_monitor(writer.text(), timeout_s);
}

StoreClient::Answer StoreClient::report(const Report& report, double timeout_s) {
  MessageWriter writer = begin(Request::report);
  writer.add(report.group).add(report.where).add(static_cast<std::int64_t>(report.timed_out));
  for (const int rank : report.suspects) writer.add(rank);
  return ask_monitor(writer.text(), timeout_s);
}

StoreClient::Answer StoreClient::abort(const std::string& reason, double timeout_s) {
  return ask_monitor(begin(Request::abort).add(reason).text(), timeout_s);
}

StoreClient::Answer StoreClient::leave(double timeout_s) {
  return ask_monitor(begin(Request::leave).text(), timeout_s);
}

}  // namespace engine::comm::detail

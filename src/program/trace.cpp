#include "engine/program/trace.hpp"

#include <fmt/core.h>

#include "src/core/json.hpp"

namespace engine::program {

using engine::detail::JsonValue;

double Trace::busy_ms(Lane lane) const {
  double ms = 0;
  for (const TraceEvent& e : events) {
    if (e.lane == lane && !e.wait) ms += e.end_ms - e.begin_ms;
  }
  return ms;
}

std::string to_json(std::span<const Trace> traces, const ModelInfo& model) {
  JsonValue list = JsonValue::array();
  const auto name_of = [&](const char* what, int rank, int thread, const std::string& value) {
    list.push(JsonValue::object({{"name", what},
                                 {"ph", "M"},
                                 {"pid", rank},
                                 {"tid", thread},
                                 {"args", JsonValue::object({{"name", value}})}}));
  };
  for (const Trace& trace : traces) {
    name_of("process_name", trace.rank, 0, fmt::format("rank {}", trace.rank));
    for (int lane = 0; lane < kLanes; ++lane) {
      name_of("thread_name", trace.rank, lane, std::string(name(static_cast<Lane>(lane))));
    }
    for (const TraceEvent& e : trace.events) {
      const Instruction& i = e.instruction;
      std::string label(e.wait ? "wait for " : "");
      label += name(i.op);
      if (i.block >= 0) label += " " + model.blocks[static_cast<std::size_t>(i.block)].name;
      if (i.unit >= 0) label += " " + model.units[static_cast<std::size_t>(i.unit)];
      list.push(JsonValue::object(
          {{"name", label},
           {"cat", e.wait ? std::string_view("Wait") : name(i.op)},
           {"ph", "X"},
           {"pid", trace.rank},
           {"tid", static_cast<int>(e.lane)},
           {"ts", e.begin_ms * 1e3},
           {"dur", (e.end_ms - e.begin_ms) * 1e3},
           {"args",
            JsonValue::object({{"block", i.block}, {"unit", i.unit}, {"micro", i.micro}})}}));
    }
  }
  JsonValue trace = JsonValue::object();
  trace.set("traceEvents", std::move(list)).set("displayTimeUnit", "ms");
  return trace.dump();
}

}  // namespace engine::program

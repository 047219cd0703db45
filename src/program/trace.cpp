#include "engine/program/trace.hpp"

#include "engine/core/atomic_file.hpp"
#include "src/core/json.hpp"

namespace engine::program {

void Trace::write(const std::string& path, const ModelInfo& model) const {
  using engine::detail::JsonValue;
  JsonValue list = JsonValue::array();
  list.push(JsonValue::object({{"name", "thread_name"},
                               {"ph", "M"},
                               {"pid", rank},
                               {"tid", 0},
                               {"args", JsonValue::object({{"name", "compute"}})}}));
  for (const TraceEvent& e : events) {
    const Instruction& i = e.instruction;
    std::string label(name(i.op));
    if (i.block >= 0) label += " " + model.blocks[static_cast<std::size_t>(i.block)].name;
    if (i.unit >= 0) label += " " + model.units[static_cast<std::size_t>(i.unit)];
    list.push(JsonValue::object(
        {{"name", label},
         {"cat", name(i.op)},
         {"ph", "X"},
         {"pid", rank},
         {"tid", 0},
         {"ts", e.begin_ms * 1e3},
         {"dur", (e.end_ms - e.begin_ms) * 1e3},
         {"args", JsonValue::object({{"block", i.block}, {"unit", i.unit}, {"micro", i.micro}})}}));
  }
  JsonValue trace = JsonValue::object();
  trace.set("traceEvents", std::move(list)).set("displayTimeUnit", "ms");
  write_file(path, trace.dump());
}

}  // namespace engine::program

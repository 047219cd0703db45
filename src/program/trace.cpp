#include "engine/program/trace.hpp"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/core/atomic_file.hpp"

namespace engine::program {

void Trace::write(const std::string& path, const ModelInfo& model) const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  list.push_back({{"name", "thread_name"},
                  {"ph", "M"},
                  {"pid", rank},
                  {"tid", 0},
                  {"args", {{"name", "compute"}}}});
  for (const TraceEvent& e : events) {
    const Instruction& i = e.instruction;
    std::string label(name(i.op));
    if (i.block >= 0) label += " " + model.blocks[static_cast<std::size_t>(i.block)].name;
    if (i.unit >= 0) label += " " + model.units[static_cast<std::size_t>(i.unit)];
    list.push_back({{"name", label},
                    {"cat", name(i.op)},
                    {"ph", "X"},
                    {"pid", rank},
                    {"tid", 0},
                    {"ts", e.begin_ms * 1e3},
                    {"dur", (e.end_ms - e.begin_ms) * 1e3},
                    {"args", {{"block", i.block}, {"unit", i.unit}, {"micro", i.micro}}}});
  }
  const std::string text =
      nlohmann::ordered_json{{"traceEvents", list}, {"displayTimeUnit", "ms"}}.dump();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace engine::program

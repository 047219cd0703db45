#include "engine/program/access.hpp"

#include <fmt/core.h>

#include <set>

#include "engine/core/error.hpp"

namespace engine::program {
namespace {

using Kind = Resource::Kind;

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::boundary:
      return "boundary";
    case Kind::boundary_gradient:
      return "boundary gradient";
    case Kind::tape:
      return "tape";
    case Kind::weight_work:
      return "weight work";
    case Kind::loss:
      return "loss";
    case Kind::values:
      return "values";
    case Kind::gradients:
      return "gradients";
    case Kind::reduced:
      return "reduced gradient";
    case Kind::targets:
      return "target count";
    case Kind::metrics:
      return "metrics";
    case Kind::norm:
      return "gradient norm";
  }
  return "?";
}

/// Builds the access of one block instruction.
class BlockAccess {
 public:
  BlockAccess(const Instruction& i, const ModelInfo& model, const Program& program)
      : block_(i.block),
        micro_(i.micro),
        last_(static_cast<int>(model.blocks.size()) - 1),
        info_(model.blocks[static_cast<std::size_t>(i.block)]),
        training_(program.training) {}

  Access forward(bool record) {
    read_values();
    const bool keeps_input = training_ && !record;
    if (block_ > 0) {
      here(keeps_input ? access_.reads : access_.drops, Kind::boundary);
    }
    if (block_ < last_) add(access_.makes, Kind::boundary, block_ + 1, micro_);
    if (record) here(access_.makes, Kind::tape);
    if (info_.makes_loss) {
      add(access_.reads, Kind::targets, -1, -1);
      add(access_.makes, Kind::loss, -1, micro_);
      if (training_) update_gradients();
    }
    return std::move(access_);
  }

  Access recompute() {
    read_values();
    if (block_ > 0) here(access_.drops, Kind::boundary);
    here(access_.makes, Kind::tape);
    return std::move(access_);
  }

  Access backward_input(bool split) {
    if (info_.backward_reads_weights) read_values();
    here(access_.drops, Kind::tape);
    if (block_ < last_) add(access_.drops, Kind::boundary_gradient, block_ + 1, micro_);
    if (block_ > 0) here(access_.makes, Kind::boundary_gradient);
    if (split) here(access_.makes, Kind::weight_work);
    update_gradients();
    return std::move(access_);
  }

  Access backward_weight() {
    here(access_.drops, Kind::weight_work);
    update_gradients();
    return std::move(access_);
  }

 private:
  static void add(std::vector<Resource>& list, Kind kind, int index, int micro) {
    list.push_back({kind, index, micro});
  }
  void here(std::vector<Resource>& list, Kind kind) const { add(list, kind, block_, micro_); }
  void read_values() {
    for (const int u : info_.units) add(access_.reads, Kind::values, u, -1);
  }
  void update_gradients() {
    for (const int u : info_.units) add(access_.updates, Kind::gradients, u, -1);
  }

  int block_;
  int micro_;
  int last_;
  const ModelInfo::BlockInfo& info_;
  bool training_;
  Access access_;
};

std::string text_of(const Resource& r) {
  std::string text(name(r.kind));
  if (r.index >= 0) text += fmt::format(" {}", r.index);
  if (r.micro >= 0) text += fmt::format(" micro {}", r.micro);
  return text;
}

/// The gradients that norm and optimizer work on.
Kind stepped(const Program& program) {
  return program.buffers.sharded ? Kind::reduced : Kind::gradients;
}

std::set<Resource> values_at_boundary(const Program& program, const ModelInfo& model) {
  std::set<Resource> values;
  if (program.buffers.pooled_values) {
    for (const int u : program.resident) values.insert({Kind::values, u, -1});
  } else {
    for (int u = 0; u < static_cast<int>(model.units.size()); ++u) {
      values.insert({Kind::values, u, -1});
    }
  }
  return values;
}

}  // namespace

std::string Resource::str() const { return text_of(*this); }

Access access(const Instruction& i, const ModelInfo& model, const Program& program) {
  Access a;
  const Resource targets = {Kind::targets, -1, -1};
  const Resource metrics = {Kind::metrics, -1, -1};
  const Resource norm = {Kind::norm, -1, -1};
  switch (i.op) {
    case Op::count_targets:
      a.makes = {targets};
      return a;
    case Op::forward:
      return BlockAccess(i, model, program).forward(i.record);
    case Op::recompute:
      return BlockAccess(i, model, program).recompute();
    case Op::backward:
      return BlockAccess(i, model, program).backward_input(false);
    case Op::backward_input:
      return BlockAccess(i, model, program).backward_input(true);
    case Op::backward_weight:
      return BlockAccess(i, model, program).backward_weight();
    case Op::reduce_metrics:
      a.reads = {targets};
      a.makes = {metrics};
      for (int m = 0; m < program.micros; ++m) a.drops.push_back({Kind::loss, -1, m});
      return a;
    case Op::gradient_norm:
      a.makes = {norm};
      for (int u = 0; u < static_cast<int>(model.units.size()); ++u) {
        a.reads.push_back({stepped(program), u, -1});
      }
      return a;
    case Op::optimizer_step:
      a.reads = {norm, metrics};
      a.drops = {{stepped(program), i.unit, -1}};
      if (!program.buffers.sharded_state) {
        a.updates = {{Kind::values, i.unit, -1}};
      } else if (!program.buffers.pooled_values) {
        a.drops.push_back({Kind::values, i.unit, -1});  // whole again after a gather
      }
      return a;
    case Op::gather:
      a.makes = {{Kind::values, i.unit, -1}};
      return a;
    case Op::release:
      a.drops = {{Kind::values, i.unit, -1}};
      return a;
    case Op::reduce_gradient:
      a.drops = {{Kind::gradients, i.unit, -1}};
      a.updates = {{Kind::reduced, i.unit, -1}};
      return a;
  }
  return a;
}

void verify(const Program& program, const ModelInfo& model) {
  const std::set<Resource> entry = values_at_boundary(program, model);
  std::set<Resource> live = entry;
  for (std::size_t at = 0; at < program.code.size(); ++at) {
    const Instruction& i = program.code[at];
    const auto where = [&] { return fmt::format("instruction {} ({})", at, i.str()); };
    const Access a = access(i, model, program);
    for (const std::vector<Resource>* list : {&a.reads, &a.drops}) {
      for (const Resource& r : *list) {
        ENGINE_CHECK(live.contains(r), Errc::internal, "program: {} needs {}, which does not exist",
                     where(), r.str());
      }
    }
    for (const Resource& r : a.makes) {
      ENGINE_CHECK(live.insert(r).second, Errc::internal,
                   "program: {} makes {}, which exists already", where(), r.str());
    }
    for (const Resource& r : a.updates) live.insert(r);
    for (const Resource& r : a.drops) live.erase(r);
  }
  for (const Resource& r : live) {
    const bool stays = r.kind == Kind::targets || r.kind == Kind::metrics || r.kind == Kind::norm;
    ENGINE_CHECK(stays || entry.contains(r), Errc::internal,
                 "program: {} is left behind at the end", r.str());
  }
  for (const Resource& r : entry) {
    ENGINE_CHECK(live.contains(r), Errc::internal,
                 "program: {} is there at the beginning and missing at the end", r.str());
  }
}

void verify_group(std::span<const Program> programs) {
  const auto communication = [](const Program& program) {
    std::vector<const Instruction*> list;
    for (const Instruction& i : program.code) {
      if (lane_of(i.op) == Lane::data) list.push_back(&i);
    }
    return list;
  };
  for (std::size_t r = 1; r < programs.size(); ++r) {
    ENGINE_CHECK(programs[r].resident == programs[0].resident, Errc::internal,
                 "programs of ranks 0 and {}: different units are whole at the boundary", r);
    const auto first = communication(programs[0]);
    const auto other = communication(programs[r]);
    for (std::size_t k = 0; k < std::max(first.size(), other.size()); ++k) {
      const auto text = [&](const auto& list) {
        return k < list.size() ? list[k]->str() : "the end";
      };
      ENGINE_CHECK(k < first.size() && k < other.size() && *first[k] == *other[k], Errc::internal,
                   "programs of ranks 0 and {} differ at communication {}: {} and {}", r, k,
                   text(first), text(other));
    }
  }
}

}  // namespace engine::program

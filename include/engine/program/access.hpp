#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/program/program.hpp"

namespace engine::program {

/// Something an instruction reads, makes or drops.
struct Resource {
  enum class Kind : std::uint8_t {
    boundary,           ///< input of block `index` for micro-batch `micro`
    boundary_gradient,  ///< gradient of that input
    tape,               ///< recording of block `index`
    weight_work,        ///< weight parts of block `index` that wait
    loss,               ///< loss of micro-batch `micro`
    values,             ///< whole weights of unit `index`
    gradients,          ///< gradients of unit `index` that backward writes
    reduced,            ///< gradient of unit `index` summed over ranks
    targets,            ///< target count of the step
    metrics,            ///< loss of the step
    norm,               ///< gradient norm of the step
  } kind = Kind::boundary;
  int index = -1;
  int micro = -1;

  auto operator<=>(const Resource&) const = default;
  std::string str() const;
};

/// What one instruction does to resources. `makes` must not exist before, unless it is in `updates`
/// too; `drops` must exist and are gone afterwards.
struct Access {
  std::vector<Resource> reads;
  std::vector<Resource> makes;
  std::vector<Resource> updates;
  std::vector<Resource> drops;
};

/// The only place that knows the dependencies of instructions.
Access access(const Instruction& instruction, const ModelInfo& model, const Program& program);

/// Checks a program before its first run: every read has its write, nothing is made twice or
/// dropped early, nothing is left behind, and the program ends in the state in which it begins.
/// Throws Errc::internal naming instruction and resource.
void verify(const Program& program, const ModelInfo& model);

/// Checks that ranks of one sharding group communicate alike: on the data lane the same
/// instructions in the same order, from the same residents. Throws Errc::internal naming the first
/// instruction that differs and both ranks.
void verify_group(std::span<const Program> programs);

}  // namespace engine::program

#pragma once
// Passes that put communication into a program of compute instructions.
#include "engine/program/program.hpp"

namespace engine::program {

/// Adds gathers, releases and reductions where the plan says, each right beside the instruction
/// that needs it: whole values before their readers and released after them, reductions after the
/// last writer, and a gather after each optimizer step where values are kept whole.
void insert_sharding(Program& program, const ModelInfo& model, const ShardPlan& plan);

/// Moves every gather of pooled values before the readers of the `units` gathers before it, the
/// first ones across the step's boundary to its end (Program::resident). A unit that would be
/// gathered right after its release stays whole instead.
/// Source: Rajbhandari et al., ZeRO, 2020 (prefetch); Tanaka et al., "DeepCompile", 2025 (as a
/// pass).
void prefetch_gathers(Program& program, const ModelInfo& model, int units);

}  // namespace engine::program

#include "engine/parallel/rank_context.hpp"

#include "engine/ops/table.hpp"

namespace engine::parallel {

RankContext::RankContext(const Options& options)
    : options_(options), device_(ops::make_device_context(options.device)) {
  ENGINE_CHECK(options.world_size == 1 && options.rank == 0, Errc::invalid_argument,
               "rank {} of a world of {}: this version runs one rank", options.rank,
               options.world_size);
}

}  // namespace engine::parallel

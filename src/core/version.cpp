#include "engine/core/version.hpp"

#include <dnnl_version.h>
#include <fmt/core.h>

#include "engine/core/thread_pool.hpp"

namespace engine {

std::string version_string() { return ENGINE_VERSION; }

std::string version_report() {
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  return fmt::format(
      "engine {}\ncompiler {}\noneDNN {}.{}.{}\nGloo {}\nCUDA not built in\ndevices cpu ({} "
      "threads)\n",
      version_string(), compiler, DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH,
      ENGINE_GLOO_VERSION, available_cpus());
}

}  // namespace engine

#pragma once
// Runs a command of the project and keeps what it printed.
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/support/files.hpp"

namespace engine::test {

struct Finished {
  int status = -1;  ///< exit code, or -1 when a signal ended it
  std::string out;
  std::string err;
};

/// `arguments` go through a shell; output is kept in `scratch`, an existing directory.
inline Finished run_command(const std::string& scratch, const std::string& command,
                            const std::string& arguments, const std::string& prefix = "") {
  const std::string line = prefix + " > " + scratch + "/stdout 2> " + scratch + "/stderr " +
                           ENGINE_BIN_DIR + "/" + command + " " + arguments;
  const int status = std::system(("cd " + scratch + " && " + line).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(scratch + "/stdout"),
          read_file(scratch + "/stderr")};
}

}  // namespace engine::test

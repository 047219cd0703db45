#pragma once
// Runs a command of the project and keeps what it printed.
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace engine::testing {

struct Finished {
  int status = -1;  ///< exit code, or -1 when a signal ended it
  std::string out;
  std::string err;
};

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// `arguments` go through a shell; output is kept in `scratch`, an existing directory.
inline Finished run_command(const std::string& scratch, const std::string& command,
                            const std::string& arguments, const std::string& prefix = "") {
  const std::string line = prefix + " " + ENGINE_BIN_DIR + "/" + command + " " + arguments + " > " +
                           scratch + "/stdout 2> " + scratch + "/stderr";
  const int status = std::system(("cd " + scratch + " && " + line).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, file_text(scratch + "/stdout"),
          file_text(scratch + "/stderr")};
}

}  // namespace engine::testing

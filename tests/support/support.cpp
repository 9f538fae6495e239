#include "support/support.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "skrull/core/error.h"
#include "skrull/core/file.h"

namespace skrull::test {
namespace fs = std::filesystem;

std::optional<fs::path> reference_data(const fs::path& relative) {
  const char* chosen = std::getenv("SKRULL_SHARED");
  const fs::path folder = chosen != nullptr ? fs::path(chosen) : fs::path(SKRULL_SOURCE_DIR) / ".." / "shared" / "data";
  if (fs::exists(folder / relative)) return folder / relative;
  std::printf("skipped: reference data %s is not on this machine\n", relative.c_str());
  return std::nullopt;
}

fs::path test_data(const fs::path& relative) {
  return fs::path(SKRULL_SOURCE_DIR) / "tests" / "data" / relative;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (fs::temp_directory_path() / "skrull-test-XXXXXX").string();
  require(::mkdtemp(pattern.data()) != nullptr, "can't make a temporary folder {}", pattern);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

CommandResult run_command(const std::vector<std::string>& command, const std::string& input) {
  const TemporaryFolder folder;
  std::ofstream(folder / "in") << input;
  const std::string in = folder / "in";
  const std::string out = folder / "out";
  const std::string err = folder / "err";
  std::vector<char*> arguments;
  for (const std::string& part : command) arguments.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  require(child >= 0, "fork failed");
  if (child == 0) {
    ::dup2(::open(in.c_str(), O_RDONLY), STDIN_FILENO);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, read_file(out), read_file(err)};
}

CommandResult run_under_mpi(int ranks, const std::vector<std::string>& command, const std::string& input) {
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  std::vector<std::string> launch = {"mpirun", "--oversubscribe", "-np", std::to_string(ranks)};
  launch.insert(launch.end(), command.begin(), command.end());
  return run_command(launch, input);
}

CommandResult run_skrull(const std::vector<std::string>& arguments, int ranks, const std::string& input) {
  std::vector<std::string> command = {std::string(SKRULL_BINARY_DIR) + "/skrull"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return ranks > 0 ? run_under_mpi(ranks, command, input) : run_command(command, input);
}

}  // namespace skrull::test

#pragma once
// What tests share: where the optional reference data lies, temporary folders, running the program.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace skrull::test {

/// Folder of large reference data that is not part of the project ($SKRULL_SHARED, else ../shared/data beside the
/// checkout), or nullopt after printing "skipped: ...": the test then returns.
std::optional<std::filesystem::path> reference_data(const std::filesystem::path& relative);

/// tests/data/<relative> of the project; always there.
std::filesystem::path test_data(const std::filesystem::path& relative);

/// A fresh empty folder, removed with everything in it at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

struct CommandResult {
  int exit_code = 0;   ///< 128 + signal when killed by one
  std::string output;  ///< standard output
  std::string errors;  ///< standard error
};

/// Runs a program (found on PATH when it has no slash) with arguments and standard input, no shell between.
CommandResult run_command(const std::vector<std::string>& command, const std::string& input = {});

/// The same on several ranks under mpirun.
CommandResult run_under_mpi(int ranks, const std::vector<std::string>& command, const std::string& input = {});

/// The trainer: <build>/skrull with these arguments; with ranks > 0 under mpirun.
CommandResult run_skrull(const std::vector<std::string>& arguments, int ranks = 0, const std::string& input = {});

}  // namespace skrull::test

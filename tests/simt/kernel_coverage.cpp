#include "kernel_coverage.h"

#include <link.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <sstream>

#include "simt/launch.h"
#include "skrull/core/error.h"
#include "support/support.h"

namespace skrull::test {
namespace {

/// How far from its symbols' addresses the program was loaded.
std::uintptr_t load_offset() {
  std::uintptr_t offset = 0;
  const auto of_program = [](dl_phdr_info* info, std::size_t, void* result) {
    *static_cast<std::uintptr_t*>(result) = info->dlpi_addr;
    return 1;  // the program comes first: stop
  };
  dl_iterate_phdr(of_program, &offset);
  return offset;
}

bool is_code(const std::string& kind) {
  return kind == "t" || kind == "T" || kind == "w" || kind == "W";
}

/// Not a lambda in a kernel, "..kernel[abi:kernel]<64>(..)::{lambda()#1}::operator()() const", nor a piece that the
/// compiler has split off.
bool is_kernel(std::string name) {
  const std::string unnamed = "(anonymous namespace)";
  for (auto at = name.find(unnamed); at != std::string::npos; at = name.find(unnamed)) name.erase(at, unnamed.size());
  const auto contains = [&](const char* part) { return name.find(part) != std::string::npos; };
  return contains("[abi:kernel]") && !contains(")::") && !contains("[clone");
}

}  // namespace

std::vector<std::string> kernels_not_launched() {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const CommandResult symbols = run_command({"nm", "--demangle", "--defined-only", program});
  require(symbols.exit_code == 0, "nm {}: {}", program, symbols.errors);
  const std::set<const void*> launched = simt::launched_kernels();
  std::size_t found = 0;
  std::vector<std::string> missing;
  std::istringstream lines(symbols.output);
  // "0000000000001200 t void skrull::(anonymous namespace)::norm_kernel[abi:kernel]<float, 64>(..)"
  for (std::string address, kind, name; lines >> address >> kind && std::getline(lines, name);) {
    if (!is_code(kind) || !is_kernel(name)) continue;
    ++found;
    const std::uintptr_t where = std::stoull(address, nullptr, 16) + load_offset();
    if (launched.count(reinterpret_cast<const void*>(where)) == 0) missing.push_back(name);
  }
  require(found > 0, "{} has no symbols of kernels", program);
  return missing;
}

}  // namespace skrull::test

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

#include "cpu_cores.h"
#include "skrull/comm/mpi_session.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

std::vector<int> affinity_of(pid_t process) {
  // The kernel wants a mask at least as wide as the machine may become.
  constexpr int cpus_at_most = 16384;
  const auto free_set = [](cpu_set_t* set) { CPU_FREE(set); };
  const std::unique_ptr<cpu_set_t, decltype(free_set)> set(CPU_ALLOC(cpus_at_most), free_set);
  const std::size_t bytes = CPU_ALLOC_SIZE(cpus_at_most);
  std::vector<int> cpus;
  if (::sched_getaffinity(process, bytes, set.get()) != 0) return cpus;
  for (int cpu = 0; cpu < cpus_at_most; ++cpu) {
    if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
  }
  return cpus;
}

/// False with errno when the system refuses. CPUs that the process' cpuset forbids are left out by the kernel.
bool set_affinity(const std::vector<int>& cpus) {
  if (cpus.empty()) return false;
  const int width = *std::max_element(cpus.begin(), cpus.end()) + 1;
  const auto free_set = [](cpu_set_t* set) { CPU_FREE(set); };
  const std::unique_ptr<cpu_set_t, decltype(free_set)> set(CPU_ALLOC(width), free_set);
  const std::size_t bytes = CPU_ALLOC_SIZE(width);
  CPU_ZERO_S(bytes, set.get());
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.get());
  return ::sched_setaffinity(0, bytes, set.get()) == 0;
}

struct Ancestor {
  pid_t process = 0;
  std::string name;
};

std::optional<Ancestor> parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t close = line.rfind(')');  // the name may hold anything, parentheses too
  if (close == std::string::npos) return std::nullopt;
  std::istringstream rest(line.substr(close + 1));
  char state = 0;
  Ancestor parent;
  if (!(rest >> state >> parent.process) || parent.process <= 0) return std::nullopt;
  std::ifstream("/proc/" + std::to_string(parent.process) + "/comm") >> parent.name;
  return parent;
}

enum class Launcher { none, open_mpi, slurm, other_mpi };

/// The nearest ancestor that starts ranks; there may be shells and wrappers between.
std::pair<Launcher, pid_t> find_launcher() {
  constexpr std::array open_mpi = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "prte"};
  constexpr std::array other_mpi = {"hydra_pmi_proxy", "mpiexec.hydra", "hydra_bstrap_pr"};
  const auto is_one_of = [](const auto& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (std::optional<Ancestor> ancestor = parent_of(::getpid()); ancestor; ancestor = parent_of(ancestor->process)) {
    if (ancestor->name.rfind("slurmstepd", 0) == 0) return {Launcher::slurm, ancestor->process};
    if (is_one_of(open_mpi, ancestor->name)) return {Launcher::open_mpi, ancestor->process};
    if (is_one_of(other_mpi, ancestor->name)) return {Launcher::other_mpi, ancestor->process};
  }
  return {Launcher::none, 0};
}

/// srun says how it bound its tasks; "none" leaves each of them all cores of the step.
bool bound_by_slurm() {
  const char* type = std::getenv("SLURM_CPU_BIND_TYPE");
  const std::string_view kind = type == nullptr ? "" : type;
  return !kind.empty() && kind.find("none") == std::string_view::npos;
}

int read_number(const std::string& file, int otherwise) {
  int number = otherwise;
  std::ifstream(file) >> number;
  return number;
}

std::vector<CpuCore> cores_of(const std::vector<int>& cpus) {
  std::vector<CpuPlace> places;
  for (const int cpu : cpus) {
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    places.push_back({cpu, read_number(topology + "physical_package_id", 0), read_number(topology + "core_id", cpu)});
  }
  return group_into_cores(std::move(places));
}

/// All CPUs the system lets this process have, whatever it is bound to now: ask for all of them and look.
std::vector<int> cpus_of_cpuset(const std::vector<int>& own) {
  std::vector<int> all(static_cast<std::size_t>(std::max(::sysconf(_SC_NPROCESSORS_CONF), 1L)));
  for (std::size_t cpu = 0; cpu < all.size(); ++cpu) all[cpu] = static_cast<int>(cpu);
  if (!set_affinity(all)) return own;
  std::vector<int> allowed = affinity_of(0);
  set_affinity(own);
  return allowed;
}

int limit_threads(int cores) {
  const char* asked = std::getenv("OMP_NUM_THREADS");
  const int limit = asked != nullptr ? std::atoi(asked) : 0;  // NOLINT(cert-err34-c): anything odd means no limit
  return limit > 0 ? std::min(limit, cores) : cores;
}

std::string describe(const std::vector<CpuCore>& cores, const char* why) {
  std::vector<int> cpus;
  for (const CpuCore& core : cores) cpus.insert(cpus.end(), core.begin(), core.end());
  return fmt::format("{} {} (CPU {}), {}", cores.size(), cores.size() == 1 ? "core" : "cores",
                     format_cpu_list(std::move(cpus)), why);
}

CpuShare keep(const std::vector<int>& own, const char* why) {
  const std::vector<CpuCore> cores = cores_of(own);
  return {limit_threads(std::max(static_cast<int>(cores.size()), 1)), describe(cores, why)};
}

}  // namespace

CpuShare spread_over_cores(int local_rank, int local_size) {
  require(local_size >= 1 && local_rank >= 0 && local_rank < local_size, "local rank {} of {}", local_rank, local_size);
  const std::vector<int> own = affinity_of(0);
  const auto [launcher, process] = find_launcher();
  if (launcher == Launcher::slurm && bound_by_slurm()) return keep(own, "as Slurm bound it");
  if (launcher == Launcher::none && local_size == 1) return keep(own, "as started");

  const std::vector<int> allowed = launcher == Launcher::open_mpi ? affinity_of(process) : cpus_of_cpuset(own);
  if (allowed.empty()) return keep(own, "as started: the launcher's cores are unknown");
  const std::vector<CpuCore> cores = cores_of(allowed);
  const std::vector<CpuCore> share = share_of_cores(cores, local_rank, local_size);
  std::vector<int> cpus;
  for (const CpuCore& core : share) cpus.insert(cpus.end(), core.begin(), core.end());
  if (!set_affinity(cpus)) {
    const std::string why = fmt::format("as started: spreading over the cores failed ({})", std::strerror(errno));
    return keep(own, why.c_str());
  }
  const bool shared = static_cast<int>(cores.size()) < local_size;
  const std::string why = shared ? fmt::format("shared: {} ranks on {} cores", local_size, cores.size())
                                 : fmt::format("of {} for {} ranks", cores.size(), local_size);
  return {limit_threads(static_cast<int>(share.size())), describe(share, why.c_str())};
}

}  // namespace skrull

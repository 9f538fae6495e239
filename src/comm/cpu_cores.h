#pragma once
// Which cores a rank gets: the decision, without touching the system.

#include <string>
#include <vector>

namespace skrull {

/// One physical core as its logical CPU numbers (hardware threads), ascending.
using CpuCore = std::vector<int>;

/// Logical CPU `cpu` sits on core `core` of package `package` (socket).
struct CpuPlace {
  int cpu = 0;
  int package = 0;
  int core = 0;
};

/// Cores ordered by package, then core, so that neighbours in the list share a socket.
std::vector<CpuCore> group_into_cores(std::vector<CpuPlace> places);

/// The contiguous even share of local rank i of n; with fewer cores than ranks the single core i mod cores.
std::vector<CpuCore> share_of_cores(const std::vector<CpuCore>& cores, int local_rank, int local_size);

/// "0-3,8".
std::string format_cpu_list(std::vector<int> cpus);

}  // namespace skrull

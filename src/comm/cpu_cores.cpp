#include "cpu_cores.h"

#include <algorithm>
#include <map>
#include <utility>

#include "skrull/comm/even_split.h"
#include "skrull/core/error.h"

namespace skrull {

std::vector<CpuCore> group_into_cores(std::vector<CpuPlace> places) {
  std::map<std::pair<int, int>, CpuCore> by_place;
  for (const CpuPlace& place : places) by_place[{place.package, place.core}].push_back(place.cpu);
  std::vector<CpuCore> cores;
  for (auto& [place, cpus] : by_place) {
    std::sort(cpus.begin(), cpus.end());
    cores.push_back(std::move(cpus));
  }
  return cores;
}

std::vector<CpuCore> share_of_cores(const std::vector<CpuCore>& cores, int local_rank, int local_size) {
  require(!cores.empty(), "no core may be used");
  const auto count = static_cast<int>(cores.size());
  if (count < local_size) return {cores[static_cast<std::size_t>(local_rank % count)]};
  const Part part = even_part(count, local_size, local_rank);
  return {cores.begin() + part.begin, cores.begin() + part.end()};
}

std::string format_cpu_list(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  std::string list;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!list.empty()) list += ',';
    list += std::to_string(cpus[i]);
    if (last > i) list += '-' + std::to_string(cpus[last]);
    i = last + 1;
  }
  return list;
}

}  // namespace skrull

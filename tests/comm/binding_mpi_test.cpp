// Which cores the ranks of a real launch end up on, and that OpenMP's threads follow.
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "skrull/comm/communicator.h"
#include "skrull/device/device.h"
#include "support/catch.h"
#include "support/mpi.h"

using namespace skrull;

namespace {

constexpr std::int64_t cpus_at_most = 1024;

std::vector<std::int64_t> own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<std::int64_t> cpus(cpus_at_most);
  for (int cpu = 0; cpu < cpus_at_most; ++cpu) cpus[static_cast<std::size_t>(cpu)] = CPU_ISSET(cpu, &set) ? 1 : 0;
  return cpus;
}

std::int64_t count_of(const std::vector<std::int64_t>& cpus) {
  return std::accumulate(cpus.begin(), cpus.end(), std::int64_t{0});
}

}  // namespace

TEST_CASE("ranks share the launcher's cores, threads included", "[mpi][binding]") {
  const MpiSession& session = test::mpi_session();
  const CpuShare share = spread_over_cores(session.local_rank(), session.local_size());
  UNSCOPED_INFO(share.description);
  const std::vector<std::int64_t> own = own_cpus();
  const auto device = make_cpu_device(share.threads);
  const auto world = session.world();

  // Every core in use; none twice while there are enough.
  std::vector<std::int64_t> users = own;
  world->all_reduce_sum(device->communication_stream(), {users.data(), DType::int64, 1, cpus_at_most});
  device->communication_stream().synchronize();
  const std::int64_t cores = std::count_if(users.begin(), users.end(), [](std::int64_t count) { return count > 0; });
  const std::int64_t most = *std::max_element(users.begin(), users.end());
  INFO(share.description << "; " << cores << " CPUs in use");
  CHECK(share.threads >= 1);
  CHECK(share.threads <= count_of(own));
  CHECK(most <= (session.local_size() + cores - 1) / cores);
  if (session.local_size() == 1) CHECK(count_of(own) == cores);

  std::vector<std::vector<std::int64_t>> threads(static_cast<std::size_t>(share.threads));
  int team = 0;
#pragma omp parallel num_threads(share.threads)
  {
#pragma omp single
    team = omp_get_num_threads();
    threads[static_cast<std::size_t>(omp_get_thread_num())] = own_cpus();
  }
  CHECK(team == share.threads);
  for (const auto& thread : threads) CHECK(thread == own);
}

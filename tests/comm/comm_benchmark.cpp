// Bandwidth of the communicator beside MPI's own all-reduce, in one run: mpirun -np 2 comm_benchmark [MiB [message KiB
// [scratch MiB]]]
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "skrull/comm/communicator.h"
#include "skrull/comm/even_split.h"
#include "skrull/comm/mpi_session.h"
#include "skrull/device/device.h"

namespace {

double median_seconds(skrull::Communicator& world, skrull::Stream& stream, const std::function<void()>& operation) {
  skrull::ControlChannel control(world, stream);
  std::vector<double> seconds;
  for (int repeat = 0; repeat < 9; ++repeat) {
    control.barrier();
    const auto start = std::chrono::steady_clock::now();
    operation();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + 4, seconds.end());
  return control.max(seconds[4]);
}

}  // namespace

int main(int argc, char** argv) {
  const skrull::MpiSession session(argc, argv);
  const std::int64_t bytes = (argc > 1 ? std::atoll(argv[1]) : 64) << 20;
  const std::string binding = skrull::spread_over_cores(session.local_rank(), session.local_size()).description;
  const auto device = skrull::make_cpu_device(1);
  skrull::Stream& stream = device->communication_stream();
  skrull::MessageLimits limits;
  if (argc > 2) limits.message_bytes = std::atoll(argv[2]) << 10;
  if (argc > 3) limits.scratch_bytes = std::atoll(argv[3]) << 20;
  const auto world = session.world(limits);
  std::vector<float> values(static_cast<std::size_t>(bytes / 4), 1.0F);
  const auto elements = static_cast<std::int64_t>(values.size());
  const skrull::TensorView buffer(values.data(), skrull::DType::float32, 1, elements);
  const std::vector<std::int64_t> counts = skrull::even_counts(elements, session.size());
  const skrull::Part own = skrull::even_part(elements, session.size(), session.rank());
  const auto report = [&](const char* name, double seconds) {
    if (session.rank() == 0) {
      std::printf("%-24s %8.2f ms  %6.2f GB/s\n", name, seconds * 1e3, static_cast<double>(bytes) / seconds / 1e9);
    }
  };
  if (session.rank() == 0)
    std::printf("%d ranks, %lld MiB, %s\n", session.size(), static_cast<long long>(bytes >> 20), binding.c_str());
  for (int pass = 0; pass < 2; ++pass) {
    report("all_reduce_sum", median_seconds(*world, stream, [&] {
             world->all_reduce_sum(stream, buffer);
             stream.synchronize();
           }));
    report("MPI_Allreduce", median_seconds(*world, stream, [&] {
             stream.enqueue([&] {
               MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(elements), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
             });
             stream.synchronize();
           }));
    std::fill(values.begin(), values.end(), 1.0F);
    report("reduce_scatter_sum", median_seconds(*world, stream, [&] {
             world->reduce_scatter_sum(stream, buffer, buffer.slice_cols(own.begin, own.count), counts);
             stream.synchronize();
           }));
    report("all_gather", median_seconds(*world, stream, [&] {
             world->all_gather(stream, buffer.slice_cols(own.begin, own.count), buffer, counts);
             stream.synchronize();
           }));
    report("broadcast", median_seconds(*world, stream, [&] {
             world->broadcast(stream, buffer, 0);
             stream.synchronize();
           }));
    skrull::ControlChannel control(*world, stream);
    report(
        "MPI_Bcast", median_seconds(*world, stream, [&] {
          stream.enqueue([&] { MPI_Bcast(values.data(), static_cast<int>(elements), MPI_FLOAT, 0, MPI_COMM_WORLD); });
          stream.synchronize();
        }));
    const auto small = median_seconds(*world, stream, [&] {
      for (int i = 0; i < 100; ++i) control.sum(1.0);
    });
    if (session.rank() == 0) std::printf("%-24s %8.2f us\n", "one control sum", small * 1e4);
  }
}

// Prints the rates of the CPU's operations: bench_ops [float32|bfloat16] [threads] [seconds per operation] [tokens]

#include <cstdio>
#include <string>

#include "skrull/device/bench.h"

int main(int argc, char** argv) {
  using namespace skrull;
  const DType dtype = argc > 1 && std::string(argv[1]) == "bfloat16" ? DType::bfloat16 : DType::float32;
  const auto device = make_cpu_device(argc > 2 ? std::stoi(argv[2]) : 0);
  const double seconds = argc > 3 ? std::stod(argv[3]) : 0.2;
  std::printf("%s; peak %.0f GFLOP/s in %s\n", device->description().c_str(), device->peak_flops(dtype) * 1e-9,
              std::string(name_of(dtype)).c_str());
  BenchShape shape;
  if (argc > 4) shape.tokens = std::stoll(argv[4]);
  for (const OpRate& rate : bench_ops(*device, shape, dtype, seconds)) {
    std::printf("%-34s %9.3f ms %8.1f GFLOP/s %7.1f GB/s\n", rate.name.c_str(), rate.seconds * 1e3, rate.gflops,
                rate.gigabytes_per_second);
  }
}

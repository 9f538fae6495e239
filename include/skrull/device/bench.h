#pragma once
// Rates of a device's operations on the shapes of a model: `skrull bench ops`, and the peaks that other figures are
// compared with.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/core/dtype.h"
#include "skrull/device/device.h"

namespace skrull {

/// Sizes of one micro-batch through one block and the head.
struct BenchShape {
  std::int64_t tokens = 2048;
  std::int64_t hidden = 896;  ///< the defaults are Qwen2.5-0.5B's
  std::int64_t num_heads = 14;
  std::int64_t num_kv_heads = 2;
  std::int64_t head_dim = 64;
  std::int64_t intermediate = 4864;
  std::int64_t vocabulary = 151936;
  std::int64_t loss_chunk_tokens = 256;
};

/// One operation, its fastest run.
struct OpRate {
  std::string name;
  double seconds = 0;
  double gflops = 0;                ///< 10^9 floating-point operations per second; 0 where bytes are what counts
  double gigabytes_per_second = 0;  ///< 10^9 bytes that must be read or written, per second; 0 where FLOPs are
};

/// Runs every matrix product of a block and of the head (forward, input gradient, weight gradient) and every operation
/// between them on random values, each at least twice and for about `seconds` seconds. Allocates what it needs under
/// "bench". The first line, "copy", is the device's plain copy: the bandwidth to compare with.
std::vector<OpRate> bench_ops(Device& device, const BenchShape& shape, DType compute_dtype, double seconds = 0.2);

/// The matrix products of one block ("qkv forward", ...) and of one chunk of the head ("head forward", ...) alone.
std::vector<OpRate> bench_products(Device& device, const BenchShape& shape, DType compute_dtype, double seconds);

/// "attention forward" and "attention backward" of one causal sequence of `length` tokens. FLOPs: 2 nq d S (S + 1)
/// forward, 2.5 times that backward.
std::vector<OpRate> bench_attention(Device& device, const BenchShape& shape, std::int64_t length, DType compute_dtype,
                                    double seconds);

}  // namespace skrull

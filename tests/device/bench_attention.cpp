// Speed of CPU attention beside oneDNN's sgemm, measured in turns in one process. Not a test: it asserts nothing.
//
//   bench_attention [heads kv_heads head_dim [float32|bfloat16 [length...]]]
//
// One JSON object on standard output. Rates are FLOPs over the best time of several turns; a causal sequence counts
// 2 heads head_dim S (S + 1) forward and 2.5 times that backward. "cpu" figures divide by the CPU time of all threads
// instead of the wall's: on a machine that others use too they tell more (set OMP_WAIT_POLICY=passive then).

#include <dnnl.h>
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cpu/attention.h"
#include "skrull/core/json.h"
#include "skrull/core/rng.h"

using namespace skrull;

namespace {

struct Best {
  double wall = std::numeric_limits<double>::infinity();
  double cpu = std::numeric_limits<double>::infinity();

  void measure(const std::function<void()>& work) {
    const auto cpu_seconds = [] {
      timespec now{};
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
      return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
    };
    const double cpu_begin = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    work();
    wall = std::min(wall, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    cpu = std::min(cpu, cpu_seconds() - cpu_begin);
  }
};

std::vector<float> random_values(std::int64_t count) {
  static std::uint64_t stream = 0;
  Rng rng(++stream);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(2 * rng.uniform() - 1);
  return values;
}

/// A square sgemm, large enough for its best rate.
class Sgemm {
 public:
  void run() {
    const dnnl_status_t status =
        dnnl_sgemm('N', 'N', size, size, size, 1, a_.data(), size, b_.data(), size, 0, c_.data(), size);
    require(status == dnnl_success, "dnnl_sgemm failed with status {}", static_cast<int>(status));
  }
  static constexpr double flops = 2.0 * 2048 * 2048 * 2048;

 private:
  static constexpr std::int64_t size = 2048;
  std::vector<float> a_ = random_values(size * size);
  std::vector<float> b_ = random_values(size * size);
  std::vector<float> c_ = random_values(size * size);
};

/// One packed micro-batch with everything forward and backward read and write.
class Batch {
 public:
  Batch(const AttentionShape& shape, DType dtype, const std::vector<std::int64_t>& lengths)
      : shape_(shape), dtype_(dtype) {
    for (const std::int64_t length : lengths) {
      segments_.push_back({tokens_, length, tokens_, length, true});
      tokens_ += length;
      flops_ += 2.0 * static_cast<double>(shape.num_heads * shape.head_dim) * static_cast<double>(length) *
                static_cast<double>(length + 1);
    }
    const std::int64_t q_cols = shape.num_heads * shape.head_dim;
    const std::int64_t kv_cols = shape.num_kv_heads * shape.head_dim;
    qkv_ = input(q_cols + 2 * kv_cols);
    dout_ = input(q_cols);
    out_ = std::vector<float>(static_cast<std::size_t>(tokens_ * q_cols));
    gradients_ = std::vector<float>(static_cast<std::size_t>(tokens_ * (q_cols + 2 * kv_cols)));
    lse_ = std::vector<float>(static_cast<std::size_t>(tokens_ * shape.num_heads));
    delta_ = lse_;
  }

  double forward_flops() const { return flops_; }

  void forward() {
    const auto [q, k, v] = columns(ConstTensorView(qkv_.data(), dtype_, tokens_, qkv_cols()));
    cpu_attention_forward({shape_, segments_, q, k, v, fp32(out_), fp32(lse_)});
  }
  void backward() {
    const auto [q, k, v] = columns(ConstTensorView(qkv_.data(), dtype_, tokens_, qkv_cols()));
    const auto [dq, dk, dv] = columns(fp32(gradients_));
    const ConstTensorView dout(dout_.data(), dtype_, tokens_, shape_.num_heads * shape_.head_dim);
    cpu_attention_delta(shape_.head_dim, fp32(out_), dout, fp32(delta_));
    cpu_attention_backward({shape_, segments_, q, k, v, fp32(out_), dout, fp32(lse_), fp32(delta_), dq, dk, dv});
  }

 private:
  std::int64_t qkv_cols() const { return (shape_.num_heads + 2 * shape_.num_kv_heads) * shape_.head_dim; }
  TensorView fp32(std::vector<float>& values) const {
    return {values.data(), DType::float32, tokens_, static_cast<std::int64_t>(values.size()) / tokens_};
  }
  template <class View>
  std::array<View, 3> columns(View fused) const {
    const std::int64_t q = shape_.num_heads * shape_.head_dim;
    const std::int64_t kv = shape_.num_kv_heads * shape_.head_dim;
    return {fused.slice_cols(0, q), fused.slice_cols(q, kv), fused.slice_cols(q + kv, kv)};
  }
  std::vector<char> input(std::int64_t cols) const {
    const std::vector<float> values = random_values(tokens_ * cols);
    std::vector<char> bytes(values.size() * static_cast<std::size_t>(size_of(dtype_)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype_ == DType::float32) reinterpret_cast<float*>(bytes.data())[i] = values[i];
      if (dtype_ == DType::bfloat16) reinterpret_cast<bfloat16*>(bytes.data())[i] = bfloat16(values[i]);
    }
    return bytes;
  }

  AttentionShape shape_;
  DType dtype_;
  std::vector<AttentionSegment> segments_;
  std::int64_t tokens_ = 0;
  double flops_ = 0;
  std::vector<char> qkv_, dout_;
  std::vector<float> out_, gradients_, lse_, delta_;
};

Json rates(double flops, const Best& best, double sgemm_wall, double sgemm_cpu) {
  return {{"gflops", flops / best.wall * 1e-9},
          {"of_sgemm", flops / best.wall / sgemm_wall},
          {"of_sgemm_cpu", flops / best.cpu / sgemm_cpu}};
}

Json measure(const std::string& name, const AttentionShape& shape, DType dtype,
             const std::vector<std::int64_t>& lengths) {
  Sgemm sgemm;
  Batch batch(shape, dtype, lengths);
  Best gemm_best;
  Best forward;
  Best backward;
  sgemm.run();
  batch.forward();
  batch.backward();
  const auto turns = std::clamp<std::int64_t>(static_cast<std::int64_t>(4e11 / batch.forward_flops()), 2, 40);
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    gemm_best.measure([&] { sgemm.run(); });
    forward.measure([&] { batch.forward(); });
    backward.measure([&] { batch.backward(); });
  }
  const double flops = batch.forward_flops();
  const double wall = Sgemm::flops / gemm_best.wall;
  const double cpu = Sgemm::flops / gemm_best.cpu;
  const Best both{forward.wall + backward.wall, forward.cpu + backward.cpu};
  return {{"sequences", name},
          {"sgemm_gflops", wall * 1e-9},
          {"sgemm_gflops_cpu", cpu * 1e-9},
          {"forward", rates(flops, forward, wall, cpu)},
          {"backward", rates(2.5 * flops, backward, wall, cpu)},
          {"both", rates(3.5 * flops, both, wall, cpu)}};
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::int64_t otherwise) { return i < argc ? std::atoll(argv[i]) : otherwise; };
  AttentionShape shape{number(1, 14), number(2, 2), number(3, 64), 0};
  shape.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
  const DType dtype = argc > 4 && std::string(argv[4]) == "bfloat16" ? DType::bfloat16 : DType::float32;
  Json result{{"threads", omp_get_max_threads()},
              {"heads", shape.num_heads},
              {"kv_heads", shape.num_kv_heads},
              {"head_dim", shape.head_dim},
              {"dtype", name_of(dtype)}};
  std::vector<std::int64_t> lengths{256, 1024, 4096, 16384};
  if (argc > 5) lengths.clear();
  for (int i = 5; i < argc; ++i) lengths.push_back(number(i, 0));
  for (const std::int64_t length : lengths)
    result["cases"].push_back(measure(std::to_string(length), shape, dtype, {length}));
  if (argc <= 5) {
    result["cases"].push_back(measure("64 x 32", shape, dtype, std::vector<std::int64_t>(64, 32)));
    result["cases"].push_back(
        measure("mixed 1..2000", shape, dtype, {2000, 7, 350, 1, 93, 811, 42, 128, 640, 15, 277, 33, 500, 64, 1100}));
  }
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

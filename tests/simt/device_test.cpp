// The CUDA device's own code, its runtime served on the CPU by streams that run late and in random order.
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "device/copy_staging.h"
#include "device/cuda_check.h"
#include "device/cuda_device.h"
#include "device/gpu_peak.h"
#include "simt/simt.h"
#include "skrull/core/error.h"
#include "skrull/device/ops.h"
#include "skrull/device/stream_stopwatch.h"
#include "support/catch.h"

using namespace skrull;

namespace {

struct Gpu {
  std::unique_ptr<Device> device = make_cuda_device(0);
  Stream& compute = device->compute_stream();
  Stream& communication = device->communication_stream();
};

std::vector<float> counting(std::int64_t count, float first) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<float> fetch(Device& device, Stream& stream, ConstTensorView view) {
  std::vector<float> values(static_cast<std::size_t>(view.elements()));
  device.copy_to_host(stream, values.data(), view);
  stream.synchronize();
  return values;
}

}  // namespace

TEST_CASE("a GPU that is there is used, and described") {
  CHECK(cuda_available());
  CHECK(built_with_cuda());
  const Gpu gpu;
  CHECK(gpu.device->kind() == DeviceKind::cuda);
  CHECK(gpu.device->description().find("GPU 0 of 1") != std::string::npos);
}

TEST_CASE("the peak is that of the data sheet") {
  const auto peak = [](const char* name, int major, int minor, int multiprocessors, double clock, DType dtype) {
    CudaGpu gpu;
    gpu.name = name;
    gpu.major = major;
    gpu.minor = minor;
    gpu.multiprocessors = multiprocessors;
    gpu.highest_clock = clock;
    return nominal_peak_flops(gpu, dtype) / 1e12;
  };
  CHECK(peak("NVIDIA A100-SXM4-80GB", 8, 0, 108, 1.41e9, DType::bfloat16) == Approx(312).epsilon(1e-3));
  CHECK(peak("NVIDIA A100-SXM4-80GB", 8, 0, 108, 1.41e9, DType::float32) == Approx(19.5).epsilon(1e-3));
  CHECK(peak("NVIDIA H100 80GB HBM3", 9, 0, 132, 1.98e9, DType::bfloat16) == Approx(989.4).epsilon(1e-3));
  CHECK(peak("NVIDIA H100 PCIe", 9, 0, 114, 1.755e9, DType::bfloat16) == Approx(756).epsilon(1e-3));
  CHECK(peak("NVIDIA H200", 9, 0, 132, 1.98e9, DType::bfloat16) == Approx(989.4).epsilon(1e-3));
  CHECK(peak("NVIDIA B200", 10, 0, 148, 1.965e9, DType::bfloat16) == Approx(2250).epsilon(1e-3));
  CHECK(peak("NVIDIA L40S", 8, 9, 142, 2.52e9, DType::bfloat16) == Approx(362).epsilon(2e-2));
  CHECK(peak("NVIDIA GeForce RTX 4090", 8, 9, 128, 2.52e9, DType::bfloat16) == Approx(165.2).epsilon(1e-3));
  CHECK(peak("of tomorrow", 10, 7, 100, 2e9, DType::bfloat16) == Approx(1638.4));
  CHECK(peak("of tomorrow", 10, 7, 100, 2e9, DType::float32) == Approx(51.2));
}

TEST_CASE("a failed call says what failed, where, and CUDA's own words") {
  try {
    SKRULL_CUDA_CHECK(cudaErrorMemoryAllocation);
    FAIL("nothing was thrown");
  } catch (const RunFailure& failure) {
    const std::string message = failure.what();
    CHECK(message.find("cudaErrorMemoryAllocation failed at ") == 0);
    CHECK(message.find("device_test.cpp:") != std::string::npos);
    CHECK(message.find("code 2") != std::string::npos);
  }
}

TEST_CASE("device memory starts as zeros, is counted by category and comes back") {
  Gpu gpu;
  const std::int64_t before = gpu.device->memory().current_bytes();
  const std::int64_t free_before = gpu.device->free_bytes();
  {
    const Buffer buffer = gpu.device->allocate(DType::float32, 3, 1000, "test");
    CHECK(gpu.device->memory().current_bytes() == before + 12000);
    CHECK(gpu.device->free_bytes() <= free_before - 12000);
    CHECK(fetch(*gpu.device, gpu.communication, buffer.view(DType::float32, 3, 1000)) ==
          std::vector<float>(3000, 0.0F));
  }
  CHECK(gpu.device->memory().current_bytes() == before);
  gpu.compute.synchronize();
  CHECK(gpu.device->free_bytes() == free_before);
}

TEST_CASE("memory is freed behind what both streams may still do with it") {
  const Gpu gpu;
  constexpr std::int64_t count = 1000;
  const std::vector<float> values = counting(count, 1);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    simt::options().seed = seed;
    const Buffer kept = gpu.device->allocate(DType::float32, 1, count, "kept");
    const TensorView target = kept.view(DType::float32, 1, count);
    {
      const Buffer freed = gpu.device->allocate(DType::float32, 1, count, "freed");
      const TensorView source = freed.view(DType::float32, 1, count);
      gpu.device->copy_to_device(gpu.compute, source, values.data());
      gpu.communication.wait(gpu.compute.record());
      gpu.device->ops().cast(gpu.communication, source, target);
    }
    CHECK(fetch(*gpu.device, gpu.communication, target) == values);
  }
  simt::options().seed = 0;
}

TEST_CASE("too much memory: what was asked for, what is free, what holds the rest") {
  Gpu gpu;
  const Buffer held = gpu.device->allocate(1 << 20, "held before");
  try {
    gpu.device->allocate(std::int64_t{1} << 45, "activations");
    FAIL("32 TiB were there");
  } catch (const RunFailure& failure) {
    const std::string message = failure.what();
    CHECK(message.find("'activations'") != std::string::npos);
    CHECK(message.find("held before") != std::string::npos);
  }
  const Buffer after = gpu.device->allocate(1 << 20, "still works");
  CHECK(after.data() != nullptr);
}

TEST_CASE("copies keep the row stride of the device's side, in pieces of any size") {
  Gpu gpu;
  auto& stream = as_cuda_stream(gpu.compute);
  const Buffer buffer = gpu.device->allocate(DType::float32, 9, 20, "test");
  const TensorView whole = buffer.view(DType::float32, 9, 20);
  const TensorView part = whole.slice_cols(3, 7);
  const std::int64_t piece = GENERATE(8, 28, 64, 1 << 20);  // less than a row, a row, two and a bit, all
  CopyStaging staging(piece);
  const std::vector<float> values = counting(63, 1.0F);
  std::vector<float> back(63);
  staging.to_device(stream, part, values.data(), GENERATE(HostRead::at_once, HostRead::in_order));
  staging.to_host(stream, back.data(), part);
  stream.synchronize();
  CHECK(back == values);
  const std::vector<float> all = fetch(*gpu.device, gpu.compute, whole);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t column = i % 20;
    if (column < 3 || column >= 10) CHECK(all[i] == 0.0F);
  }
}

TEST_CASE("host memory may be used again at once on the compute stream, also when the ring comes round") {
  Gpu gpu;
  const Buffer buffer = gpu.device->allocate(DType::float32, 100, 1000, "test");
  std::vector<float> host(1000);
  CopyStaging staging(3 * 4096);  // three copies a piece
  for (std::int64_t row = 0; row < 100; ++row) {
    host.assign(1000, static_cast<float>(row));
    staging.to_device(as_cuda_stream(row % 3 == 0 ? gpu.communication : gpu.compute),
                      buffer.view(DType::float32, 100, 1000).slice_rows(row, 1), host.data(), HostRead::at_once);
  }
  gpu.compute.wait(gpu.communication.record());
  const std::vector<float> back = fetch(*gpu.device, gpu.compute, buffer.view(DType::float32, 100, 1000));
  bool same = true;
  for (std::size_t i = 0; i < back.size(); ++i) same = same && back[i] == static_cast<float>(i / 1000);
  CHECK(same);
}

TEST_CASE("pinned host memory is zero, counted apart, and copied when the stream gets there") {
  Gpu gpu;
  Buffer host = gpu.device->allocate_on_host(DType::float32, 1, 500, "states");
  CHECK(gpu.device->host_memory().current_bytes() == 2000);
  auto* values = static_cast<float*>(host.data());
  CHECK(std::accumulate(values, values + 500, 0.0F) == 0.0F);
  const Buffer buffer = gpu.device->allocate(DType::float32, 1, 500, "test");
  const TensorView view = buffer.view(DType::float32, 1, 500);
  const auto queue = make_host_queue();
  queue->enqueue([&] { std::fill_n(values, 500, 7.0F); });
  gpu.communication.wait(queue->record());
  gpu.device->copy_to_device(gpu.communication, view, values + 100 - 100);
  gpu.compute.wait(gpu.communication.record());
  gpu.device->ops().scale(gpu.compute, 2.0F, view);
  const Event scaled = gpu.compute.record();
  Buffer back = gpu.device->allocate_on_host(DType::float32, 1, 500, "states");
  gpu.communication.wait(scaled);
  gpu.device->copy_to_host(gpu.communication, back.data(), view);
  queue->wait(gpu.communication.record());  // a thread of the host waits for the device
  float sum = 0;
  queue->enqueue(
      [&] { sum = std::accumulate(static_cast<float*>(back.data()), static_cast<float*>(back.data()) + 500, 0.0F); });
  queue->synchronize();
  CHECK(sum == 7000.0F);
}

TEST_CASE("data passes between two streams by events alone, back and forth") {
  Gpu gpu;
  const Buffer buffer = gpu.device->allocate(DType::float32, 1, 64, "test");
  const TensorView view = buffer.view(DType::float32, 1, 64);
  const std::vector<float> ones(64, 1.0F);
  gpu.device->copy_to_device(gpu.compute, view, ones.data());
  for (int round = 0; round < 50; ++round) {
    gpu.communication.wait(gpu.compute.record());
    gpu.device->ops().add(gpu.communication, view, view);  // doubles
    gpu.compute.wait(gpu.communication.record());
    gpu.device->ops().scale(gpu.compute, 0.5F, view);
  }
  CHECK(fetch(*gpu.device, gpu.compute, view) == ones);
}

TEST_CASE("an event covers what was queued before it, and tells the time where it was asked to") {
  Gpu gpu;
  bool ran = false;
  gpu.compute.enqueue([&] { ran = true; });
  const Event event = gpu.compute.record();
  event.synchronize();
  CHECK(ran);
  CHECK(event.reached());
  const Event begin = gpu.communication.record_time();
  gpu.communication.enqueue([&clock = gpu.communication.clock()] { clock.wait_until(clock.seconds() + 0.02); });
  const Event end = gpu.communication.record_time();
  end.synchronize();
  CHECK(end.seconds() - begin.seconds() >= 0.019);
  const Event on_compute = gpu.compute.record_time();
  on_compute.synchronize();
  CHECK(on_compute.seconds() == Approx(gpu.compute.clock().seconds()).margin(5.0));  // one time on all streams
}

TEST_CASE("after a task threw, later tasks are dropped and every wait on the device rethrows") {
  Gpu gpu;
  bool later = false;
  gpu.communication.enqueue([] { throw RunFailure("a peer is gone"); });
  gpu.communication.enqueue([&] { later = true; });
  gpu.compute.wait(gpu.communication.record());
  CHECK_THROWS_WITH(gpu.communication.synchronize(), "a peer is gone");
  CHECK_THROWS_WITH(gpu.compute.synchronize(), "a peer is gone");
  CHECK_THROWS_WITH(gpu.compute.record().synchronize(), "a peer is gone");
  gpu.communication.enqueue([&] { later = true; });
  CHECK_THROWS_AS(gpu.communication.synchronize(), RunFailure);
  CHECK_FALSE(later);
}

TEST_CASE("who watches over the device looks while its thread waits, and what it throws ends every wait") {
  struct Watcher : CudaWatcher {
    void look() override {
      if (++looks == 3) throw RunFailure("it hangs");
    }
    int looks = 0;
  };
  auto device = make_cuda_device(0);
  auto& cuda = dynamic_cast<CudaDevice&>(*device);
  Watcher watcher;
  cuda.progress().add(watcher);
  const auto let_go = std::make_shared<std::atomic<bool>>(false);  // the task may see it later than this test ends
  device->communication_stream().enqueue([let_go] {
    while (!*let_go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  CHECK_THROWS_WITH(device->communication_stream().synchronize(), "it hangs");
  CHECK_THROWS_WITH(device->compute_stream().synchronize(), "it hangs");
  CHECK(watcher.looks == 3);
  *let_go = true;
  cuda.progress().remove(watcher);
}

TEST_CASE("operations on several streams have scratch memory of their own") {
  Gpu gpu;
  DeviceScratch scratch(*gpu.device, "test", 64 << 20);
  void* on_compute = scratch.get(gpu.compute, 1000);
  void* on_communication = scratch.get(gpu.communication, 1000);
  CHECK(on_compute != on_communication);
  CHECK(scratch.get(gpu.compute, scratch.capacity()) == on_compute);
  CHECK_THROWS_AS(scratch.get(gpu.compute, scratch.capacity() + 1), RunFailure);
}

TEST_CASE("streams of another device are refused") {
  Gpu gpu;
  const Buffer buffer = gpu.device->allocate(DType::float32, 1, 8, "test");
  const std::vector<float> host(8);
  CHECK_THROWS_AS(gpu.device->copy_to_device(caller_stream(), buffer.view(DType::float32, 1, 8), host.data()),
                  RunFailure);
}

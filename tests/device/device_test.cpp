#include <cstdint>
#include <utility>

#include "device/matrix.h"
#include "skrull/core/error.h"

using namespace skrull;
using skrull::test::Matrix;

TEST_CASE("buffers are aligned, zero and counted") {
  const auto device = make_cpu_device(2);
  CHECK(device->memory().current_bytes() == 0);
  for (const std::int64_t bytes :
       {std::int64_t{1}, std::int64_t{100}, std::int64_t{4096}, (std::int64_t{5} << 20) + 3}) {
    const Buffer buffer = device->allocate(bytes, "test");
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
    CHECK(buffer.bytes() == bytes);
    const auto* data = static_cast<const char*>(buffer.data());
    CHECK(std::all_of(data, data + bytes, [](char byte) { return byte == 0; }));
    CHECK(device->memory().by_category().at("test") == bytes);
  }
  CHECK(device->memory().current_bytes() == 0);
  CHECK(device->memory().peak_bytes() == (std::int64_t{5} << 20) + 3);
  const Buffer nothing = device->allocate(0, "test");
  CHECK(nothing.bytes() == 0);
  CHECK(nothing.view(DType::float32, 0, 8).empty());
}

TEST_CASE("moving a buffer moves what it counts") {
  const auto device = make_cpu_device(1);
  Buffer first = device->allocate(DType::float32, 10, 10, "a");
  Buffer second = device->allocate(DType::bfloat16, 10, 10, "b");
  CHECK(device->memory().current_bytes() == 600);
  void* data = first.data();
  second = std::move(first);
  CHECK(second.data() == data);
  CHECK(device->memory().current_bytes() == 400);
  CHECK(device->memory().by_category().at("a") == 400);
  CHECK(device->memory().by_category().at("b") == 0);
  const Buffer third(std::move(second));
  CHECK(third.bytes() == 400);
  CHECK(device->memory().peak_bytes() == 600);
}

TEST_CASE("views are checked against their buffer") {
  const auto device = make_cpu_device(1);
  const Buffer buffer = device->allocate(1000, "test");
  CHECK(buffer.view(DType::float32, 25, 10).rows() == 25);
  CHECK(buffer.view(DType::bfloat16, 5, 100).cols() == 100);
  CHECK(static_cast<char*>(buffer.view(DType::float32, 1, 200, 200).data()) == static_cast<char*>(buffer.data()) + 200);
  CHECK_THROWS_AS(buffer.view(DType::float32, 25, 11), RunFailure);
  CHECK_THROWS_AS(buffer.view(DType::float32, 1, 200, 204), RunFailure);
  CHECK_THROWS_AS(buffer.view(DType::float32, 1, 1, 2), RunFailure);
  CHECK_THROWS_AS(buffer.view(DType::float32, 1, 1, -4), RunFailure);
  CHECK_THROWS_AS(buffer.view(DType::float32, std::int64_t{1} << 40, std::int64_t{1} << 40), RunFailure);
}

TEST_CASE("out of memory names what was asked, what is free and who holds what") {
  const auto device = make_cpu_device(1);
  const Buffer held = device->allocate(3 << 20, "parameters");
  try {
    const Buffer never = device->allocate(std::int64_t{1} << 50, "activations");
    FAIL("a pebibyte was allocated");
  } catch (const RunFailure& failure) {
    const std::string message = failure.what();
    CHECK_THAT(message, Catch::Matchers::ContainsSubstring("1024.0 TiB more were asked for 'activations'"));
    CHECK_THAT(message, Catch::Matchers::ContainsSubstring("parameters"));
    CHECK_THAT(message, Catch::Matchers::ContainsSubstring("3.0 MiB"));
  }
  CHECK(device->memory().current_bytes() == 3 << 20);
}

TEST_CASE("free memory is a positive part of the machine's and shrinks by what is allocated") {
  const auto device = make_cpu_device(1);
  const std::int64_t free = device->free_bytes();
  CHECK(free > 0);
  CHECK(free < std::int64_t{1} << 46);
}

TEST_CASE("the device says what it is") {
  CHECK_THAT(make_cpu_device(3)->description(), Catch::Matchers::StartsWith("CPU, 3 threads, "));
  CHECK_THAT(make_cpu_device(1)->description(), Catch::Matchers::StartsWith("CPU, 1 thread, "));
  CHECK_THAT(make_cpu_device()->description(), Catch::Matchers::ContainsSubstring("oneDNN "));
  CHECK(make_cpu_device(1)->kind() == DeviceKind::cpu);
  CHECK_THROWS_AS(make_cpu_device(-1), InvalidInput);
}

TEST_CASE("a build without CUDA says so") {
  if (cuda_available()) return;
  CHECK_THROWS_AS(make_cuda_device(0), InvalidInput);
}

TEST_CASE("copies to and from the device keep the row stride of the device's side") {
  const auto device = make_cpu_device(2);
  const DType dtype = GENERATE(DType::float32, DType::bfloat16, DType::int32);
  const Matrix host = Matrix::random(dtype, 5, 7, "host", 100);
  Matrix on_device(dtype, 5, 7, 3);
  Matrix back(dtype, 5, 7);
  Stream& stream = device->communication_stream();
  device->copy_to_device(stream, on_device.view(), host.view().data());
  device->copy_to_host(stream, back.view().data(), on_device.view());
  stream.synchronize();
  CHECK(back == host);
  CHECK(on_device.guards_intact());
}

TEST_CASE("operations queued on the communication stream run there, after what they wait for") {
  const auto device = make_cpu_device(2);
  const Matrix ones = Matrix::of(DType::float32, std::vector<double>(50000, 1.0));
  Matrix sum(DType::float32, 1, 50000);
  Stream& communication = device->communication_stream();
  for (int i = 0; i < 10; ++i) device->ops().add(communication, ones.view(), sum.view());
  device->compute_stream().wait(communication.record());
  device->ops().scale(device->compute_stream(), 2.0F, sum.view());
  test::check_close(
      sum, [](std::int64_t, std::int64_t) { return 20.0; }, 0.0);
}

TEST_CASE("the peak rate is measured once per dtype") {
  const auto device = make_cpu_device(1);
  const double rate = device->peak_flops(DType::float32);
  CHECK(rate > 1e8);
  CHECK(device->peak_flops(DType::float32) == rate);
  CHECK(device->memory().current_bytes() == 0);
}

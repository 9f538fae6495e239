// Which engine computes attention, and how packed sequences are described to one. The program's cuDNN is replaced by an
// engine that computes on the native kernels and can be told to fail.

#include "ops/attention_engine.h"

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda_stream.h"
#include "device/preferred_attention.h"
#include "ops/attention_self_check.h"
#include "ops/cudnn_attention.h"
#include "ops/sequence_tables.h"
#include "simt/kernel_coverage.h"
#include "skrull/core/error.h"
#include "skrull/core/rng.h"
#include "skrull/device/device.h"
#include "support/catch.h"

using namespace skrull;
using attention::SequenceGroup;
using attention::SequenceTables;
using Catch::Matchers::ContainsSubstring;

namespace {

using Fault = std::function<void(Stream&, const AttentionForward&)>;

/// The native kernels under another name, then a fault.
class FaultyEngine final : public AttentionEngine {
 public:
  explicit FaultyEngine(Fault fault = {}) : fault_(std::move(fault)) {}

  std::string_view name() const override { return "faulty"; }
  std::string_view obstacle(const AttentionForward& a) override { return cudnn_obstacle(cudnn_request(90, a)); }
  std::string_view obstacle(const AttentionBackward& /*a*/) override { return "no gradients"; }
  void run(Stream& stream, const AttentionForward& a) override {
    ++runs;
    native_->run(stream, a);
    if (fault_) fault_(stream, a);
  }
  void run(Stream& /*stream*/, const AttentionBackward& /*a*/) override { FAIL("a backward reached the engine"); }

  int runs = 0;

 private:
  Fault fault_;
  std::unique_ptr<AttentionEngine> native_ = make_native_attention();
};

/// What the replaced cuDNN does.
struct CudnnBehaviour {
  std::string problem;
  Fault fault;
};
CudnnBehaviour cudnn;

/// The GPU of all tests.
Device& gpu() {
  static const auto device = make_cuda_device(0);
  return *device;
}

/// Queues `value` into one element of a matrix.
template <class T>
void overwrite(Stream& stream, const TensorView& matrix, std::int64_t row, std::int64_t column, T value) {
  gpu().copy_to_device(stream, matrix.slice_rows(row, 1).slice_cols(column, 1), &value);
}

void wrong_result(Stream& stream, const AttentionForward& a) {
  overwrite(stream, a.out, 400, 5, bfloat16(3.0F));
}

CudnnRequest usual_request() {
  return {.compute_capability = 90, .head_dim = 128, .whole_sequences = true, .aligned = true};
}

/// Obstacle of the usual request after `change`.
std::string obstacle_of(const std::function<void(CudnnRequest&)>& change) {
  CudnnRequest request = usual_request();
  change(request);
  return std::string(cudnn_obstacle(request));
}

/// A forward over 8 rows of 2 heads of 64; its memory is never read.
struct Packed {
  alignas(16) char memory[16] = {};
  std::vector<AttentionSegment> segments = {{0, 5, 0, 5, true}, {5, 3, 5, 3, true}};

  AttentionForward call(DType dtype = DType::bfloat16, std::int64_t stride = 384, std::int64_t offset = 0) {
    const auto view = [&](DType type, std::int64_t cols) { return TensorView(memory + offset, type, 8, cols, stride); };
    return {.shape = {2, 2, 64, 0.125F},
            .segments = segments,
            .q = view(dtype, 128),
            .k = view(dtype, 128),
            .v = view(dtype, 128),
            .out = view(dtype, 128),
            .lse = view(DType::float32, 2)};
  }
};

CudaGpu gpu_of(int major, int minor) {
  CudaGpu gpu;
  gpu.major = major;
  gpu.minor = minor;
  return gpu;
}

class Scratch final : public CudaScratch {
 public:
  void* get(Stream& /*stream*/, std::int64_t /*bytes*/) override { return nullptr; }
  std::int64_t capacity() const override { return 0; }
};

std::unique_ptr<AttentionEngine> preferred(AttentionEngineChoice choice, const CudaGpu& kind) {
  static Scratch scratch;
  return preferred_attention(choice, kind, gpu(), scratch);
}

std::vector<AttentionSegment> random_sequences(Rng& rng, std::int64_t count, std::uint64_t longest) {
  std::vector<AttentionSegment> segments;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto length = static_cast<std::int64_t>(rng.below(longest));
    segments.push_back({begin, length, begin, length, true});
    begin += length + static_cast<std::int64_t>(rng.below(3));
  }
  rng.shuffle(segments);
  return segments;
}

}  // namespace

namespace skrull {

std::string cudnn_problem() {
  return cudnn.problem;
}

std::unique_ptr<AttentionEngine> make_cudnn_attention(CudaScratch& /*scratch*/, int /*compute_capability*/) {
  return std::make_unique<FaultyEngine>(cudnn.fault);
}

}  // namespace skrull

TEST_CASE("cuDNN takes whole bf16 sequences on the GPUs it has kernels for") {
  CHECK(cudnn_obstacle(usual_request()).empty());
  for (const int capability : {90, 100, 103}) {
    CHECK(obstacle_of([&](CudnnRequest& r) { r.compute_capability = capability; }).empty());
  }
  for (const int capability : {80, 86, 89, 110, 120}) {
    CHECK_THAT(obstacle_of([&](CudnnRequest& r) { r.compute_capability = capability; }),
               ContainsSubstring("compute capability"));
  }
  for (const std::int64_t head_dim : {8, 64, 80, 96, 128}) {
    CHECK(obstacle_of([&](CudnnRequest& r) { r.head_dim = head_dim; }).empty());
  }
  for (const std::int64_t head_dim : {4, 68, 100, 136, 256}) {
    CHECK_THAT(obstacle_of([&](CudnnRequest& r) { r.head_dim = head_dim; }), ContainsSubstring("multiple of 8"));
  }
  CHECK_THAT(obstacle_of([](CudnnRequest& r) { r.whole_sequences = false; }), ContainsSubstring("part of a sequence"));
  CHECK_THAT(obstacle_of([](CudnnRequest& r) { r.dtype = DType::float32; }), ContainsSubstring("bfloat16"));
  CHECK_THAT(obstacle_of([](CudnnRequest& r) { r.out_dtype = DType::float32; }), ContainsSubstring("float32"));
  CHECK_THAT(obstacle_of([](CudnnRequest& r) { r.aligned = false; }), ContainsSubstring("16 bytes"));
}

TEST_CASE("a request says what a forward is made of") {
  Packed packed;
  const CudnnRequest request = cudnn_request(90, packed.call());
  CHECK(request.compute_capability == 90);
  CHECK(request.dtype == DType::bfloat16);
  CHECK(request.head_dim == 64);
  CHECK(request.whole_sequences);
  CHECK(request.aligned);
  CHECK(cudnn_request(90, packed.call(DType::float32)).dtype == DType::float32);
  CHECK_FALSE(cudnn_request(90, packed.call(DType::bfloat16, 390)).aligned);
  CHECK_FALSE(cudnn_request(90, packed.call(DType::bfloat16, 384, 2)).aligned);

  // What rings compute: an earlier rank's keys, keys elsewhere, a tail of queries.
  for (const AttentionSegment part :
       {AttentionSegment{5, 3, 5, 3, false}, {5, 3, 0, 3, true}, {5, 2, 5, 3, true}, {5, 3, 5, 2, true}}) {
    packed.segments[1] = part;
    CHECK_FALSE(cudnn_request(90, packed.call()).whole_sequences);
  }
}

TEST_CASE("the preferred engine computes what it takes, the native one the rest") {
  Device& device = gpu();
  Stream& stream = device.compute_stream();
  auto faulty =
      std::make_unique<FaultyEngine>([](Stream& s, const AttentionForward& a) { overwrite(s, a.lse, 0, 0, 42.0F); });
  const FaultyEngine& watched = *faulty;
  AttentionEngines engines(std::move(faulty));
  const std::vector<AttentionSegment> segments = {{0, 16, 0, 16, true}};
  const auto first_lse = [&](DType dtype) {
    const Buffer q = device.allocate(dtype, 16, 64, "test");
    const Buffer out = device.allocate(dtype, 16, 64, "test");
    const Buffer lse = device.allocate(DType::float32, 16, 1, "test");
    const TensorView rows = q.view(dtype, 16, 64);
    engines.run(stream, {.shape = {1, 1, 64, 0.125F},
                         .segments = segments,
                         .q = rows,
                         .k = rows,
                         .v = rows,
                         .out = out.view(dtype, 16, 64),
                         .lse = lse.view(DType::float32, 16, 1)});
    float value = -1;
    device.copy_to_host(stream, &value, lse.view(DType::float32, 1, 1));
    stream.synchronize();
    return value;
  };
  CHECK(first_lse(DType::bfloat16) == 42.0F);
  CHECK(watched.runs == 1);
  CHECK(first_lse(DType::float32) == 0.0F);  // one key, score 0
  CHECK(watched.runs == 1);

  const Buffer memory = device.allocate(DType::float32, 16, 64, "test");
  const Buffer q = device.allocate(DType::bfloat16, 16, 64, "test");
  const TensorView gradient = memory.view(DType::float32, 16, 64);
  const TensorView rows = q.view(DType::bfloat16, 16, 64);
  const TensorView column = memory.view(DType::float32, 16, 1);
  engines.run(stream, AttentionBackward{.shape = {1, 1, 64, 0.125F},
                                        .segments = segments,
                                        .q = rows,
                                        .k = rows,
                                        .v = rows,
                                        .dout = rows,
                                        .lse = column,
                                        .delta = column,
                                        .dq = gradient,
                                        .dk = gradient,
                                        .dv = gradient});
  stream.synchronize();
}

TEST_CASE("the self-check passes an engine that agrees and names what differs") {
  Device& device = gpu();
  const auto native = make_native_attention();
  const auto problem = [&](Fault fault) {
    FaultyEngine engine(std::move(fault));
    std::string text = compare_attention(device, engine, *native);
    CHECK(engine.runs > 0);
    return text;
  };
  CHECK(problem({}).empty());
  CHECK_THAT(problem(wrong_result), ContainsSubstring("the result at row 400, column 5 is 3"));
  CHECK_THAT(problem([](Stream& s, const AttentionForward& a) {
               overwrite(s, a.out, 980, 255, bfloat16(std::numeric_limits<float>::quiet_NaN()));
             }),
             ContainsSubstring("row 980, column 255 is nan"));
  CHECK_THAT(problem([](Stream& s, const AttentionForward& a) { overwrite(s, a.lse, 7, 3, 1.0F); }),
             ContainsSubstring("the log-sum-exp at row 7, column 3 is 1"));
  // Rows of no sequence belong to somebody else.
  CHECK_THAT(problem([](Stream& s, const AttentionForward& a) { overwrite(s, a.out, 2, 0, bfloat16(0.0F)); }),
             ContainsSubstring("the result at row 2, column 0 is 0 where 7 was expected"));
}

TEST_CASE("which engine is preferred follows from option, GPU, build and check") {
  using Choice = AttentionEngineChoice;
  cudnn = {};
  CHECK(preferred(Choice::automatic, gpu_of(9, 0)));
  CHECK(preferred(Choice::cudnn, gpu_of(10, 0)));
  CHECK_FALSE(preferred(Choice::native, gpu_of(9, 0)));
  CHECK_FALSE(preferred(Choice::automatic, gpu_of(8, 0)));
  CHECK_THROWS_WITH(preferred(Choice::cudnn, gpu_of(8, 6)), ContainsSubstring("GPU 0 has 8.6"));
  CHECK_THROWS_AS(preferred(Choice::cudnn, gpu_of(8, 6)), InvalidInput);

  cudnn.problem = "it is not there";
  CHECK_FALSE(preferred(Choice::automatic, gpu_of(9, 0)));
  CHECK_THROWS_WITH(preferred(Choice::cudnn, gpu_of(9, 0)), ContainsSubstring("it is not there"));

  cudnn = {"", wrong_result};
  CHECK_FALSE(preferred(Choice::automatic, gpu_of(9, 0)));
  CHECK_FALSE(preferred(Choice::cudnn, gpu_of(9, 0)));
  cudnn = {"", [](Stream& /*s*/, const AttentionForward& /*a*/) { throw_run_failure("no kernel image"); }};
  CHECK_FALSE(preferred(Choice::cudnn, gpu_of(9, 0)));
  cudnn = {};
}

TEST_CASE("every sequence is in one group, of its length, in order of its rows") {
  Rng rng(3, "groups");
  for (int round = 0; round < 50; ++round) {
    const auto segments = random_sequences(rng, static_cast<std::int64_t>(rng.below(700)), 1 + rng.below(9000));
    std::map<int, int> expected;
    for (const AttentionSegment& s : segments) {
      if (s.q_len > 0) expected[static_cast<int>(s.q_begin)] = static_cast<int>(s.q_len);
    }
    std::map<int, int> found;
    for (const SequenceGroup& group : attention::group_sequences(segments)) {
      REQUIRE(group.count >= 1);
      REQUIRE(group.count <= group.slots);
      REQUIRE(group.slots <= SequenceGroup::most);
      REQUIRE(group.slots < 2 * group.count);
      REQUIRE((group.length & (group.length - 1)) == 0);
      for (int i = 0; i < group.count; ++i) {
        const int length = group.lengths[i];
        REQUIRE(length <= group.length);
        REQUIRE((group.length == 512 || 2 * length > group.length));
        if (i > 0) REQUIRE(group.begins[i] > group.begins[i - 1]);
        REQUIRE(found.emplace(group.begins[i], length).second);
      }
    }
    REQUIRE(found == expected);
  }
  CHECK(attention::group_sequences({}).empty());
}

TEST_CASE("tables hold where each sequence starts in each tensor, and no length beyond the last one") {
  Device& device = gpu();
  Stream& stream = device.compute_stream();
  for (const std::int64_t count : {1, 2, 3, 255, 256}) {
    Rng rng(static_cast<std::uint64_t>(count), "tables");
    auto segments = random_sequences(rng, count, 200);
    for (AttentionSegment& s : segments) s.q_len = s.k_len = s.q_len + 1;
    const std::vector<SequenceGroup> groups = attention::group_sequences(segments);
    REQUIRE(groups.size() == 1);
    const SequenceGroup& group = groups.front();
    const std::int64_t bytes = SequenceTables::bytes(group);
    const Buffer memory = device.allocate(bytes, "test");
    const SequenceTables tables(memory.data(), group);
    constexpr std::int64_t far = std::int64_t{1} << 40;  // offsets beyond 32 bits
    const std::array<std::int64_t, SequenceTables::tensors> strides = {4608, 4608, 3584, 28, far};
    tables.fill(cuda_stream(stream), group, strides);
    std::vector<char> host(static_cast<std::size_t>(bytes));
    device.copy_to_host(stream, host.data(), memory.view(DType::uint8, 1, bytes));
    stream.synchronize();
    const auto on_host = [&](const auto* at) {
      return reinterpret_cast<decltype(at)>(
          host.data() + (reinterpret_cast<const char*>(at) - static_cast<const char*>(memory.data())));
    };
    for (int tensor = 0; tensor < SequenceTables::tensors; ++tensor) {
      const std::int64_t* offsets = on_host(tables.offsets(tensor));
      const std::int64_t stride = strides[static_cast<std::size_t>(tensor)];
      const int last = group.count - 1;
      for (int i = 0; i <= group.slots; ++i) {
        const std::int64_t row = i <= last ? group.begins[i] : group.begins[last] + group.lengths[last];
        REQUIRE(offsets[i] == row * stride);
      }
    }
    const std::int32_t* lengths = on_host(tables.lengths());
    for (int i = 0; i < group.slots; ++i) REQUIRE(lengths[i] == (i < group.count ? group.lengths[i] : 0));
  }
}

// The last one: of what ran before.
TEST_CASE("the cases above launch the kernel of the sequence tables") {
  for (const std::string& name : test::kernels_not_launched()) CHECK(name.find("fill_tables") == std::string::npos);
}

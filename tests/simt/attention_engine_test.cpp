// Which engine computes attention, and how packed sequences are described to one. The program's cuDNN is replaced by an
// engine that computes on the native kernels and can be told to fail.

#include "ops/attention_engine.h"

#include <algorithm>
#include <cmath>
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
using attention::SequenceRows;
using attention::SequenceTables;
using Catch::Matchers::ContainsSubstring;

namespace {

/// What goes wrong after a call.
struct Faults {
  std::function<void(Stream&, const AttentionForward&)> forward = {};
  std::function<void(Stream&, const AttentionBackward&)> backward = {};
};

/// The native kernels under another name, then a fault.
class FaultyEngine final : public AttentionEngine {
 public:
  explicit FaultyEngine(Faults faults = {}, bool deterministic = false)
      : faults_(std::move(faults)), deterministic_(deterministic) {}

  std::string_view name() const override { return "faulty"; }
  std::string_view obstacle(const AttentionForward& a) override { return cudnn_obstacle(cudnn_request(90, a)); }
  std::string_view obstacle(const AttentionBackward& a) override {
    return cudnn_obstacle(cudnn_request(90, deterministic_, a));
  }
  void run(Stream& stream, const AttentionForward& a) override {
    ++forwards;
    native_->run(stream, a);
    if (faults_.forward) faults_.forward(stream, a);
  }
  void run(Stream& stream, const AttentionBackward& a) override {
    ++backwards;
    native_->run(stream, a);
    if (faults_.backward) faults_.backward(stream, a);
  }

  int forwards = 0;
  int backwards = 0;

 private:
  Faults faults_;
  bool deterministic_;
  std::unique_ptr<AttentionEngine> native_ = make_native_attention();
};

/// What the replaced cuDNN does.
struct CudnnBehaviour {
  std::string problem;
  Faults faults;
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
void wrong_gradient(Stream& stream, const AttentionBackward& a) {
  overwrite(stream, a.dk, 400, 5, 3.0F);
}

CudnnRequest usual_request() {
  return {.compute_capability = 90, .head_dim = 128, .whole_sequences = true, .aligned = true};
}
CudnnRequest usual_backward() {
  CudnnRequest request = usual_request();
  request.backward = true;
  return request;
}

/// Obstacle of a request after `change`.
std::string obstacle_of(const std::function<void(CudnnRequest&)>& change, CudnnRequest request = usual_request()) {
  change(request);
  return std::string(cudnn_obstacle(request));
}

/// Calls over 8 rows of 2 heads of 64; their memory is never read.
struct Packed {
  alignas(16) char memory[16] = {};
  std::vector<AttentionSegment> segments = {{0, 5, 0, 5, true}, {5, 3, 5, 3, true}};

  TensorView view(DType type, std::int64_t cols, std::int64_t stride = 384, std::int64_t offset = 0) {
    return {memory + offset, type, 8, cols, stride};
  }
  AttentionForward call(DType dtype = DType::bfloat16, std::int64_t stride = 384, std::int64_t offset = 0) {
    const TensorView rows = view(dtype, 128, stride, offset);
    return {.shape = {2, 2, 64, 0.125F},
            .segments = segments,
            .q = rows,
            .k = rows,
            .v = rows,
            .out = rows,
            .lse = view(DType::float32, 2)};
  }
  AttentionBackward backward() {
    const TensorView rows = view(DType::bfloat16, 128);
    const TensorView gradient = view(DType::float32, 128);
    return {.shape = {2, 2, 64, 0.125F},
            .segments = segments,
            .q = rows,
            .k = rows,
            .v = rows,
            .out = rows,
            .dout = rows,
            .lse = view(DType::float32, 2),
            .delta = view(DType::float32, 2),
            .dq = gradient,
            .dk = gradient,
            .dv = gradient};
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

PreferredAttention preferred(AttentionEngineChoice engine, const CudaGpu& kind, bool deterministic = false) {
  static Scratch scratch;
  return preferred_attention({engine, deterministic}, kind, gpu(), scratch, scratch);
}
/// "forward", "backward", "both" or "none".
std::string directions(const PreferredAttention& preferred) {
  if (preferred.forward && preferred.backward) return "both";
  return preferred.forward ? "forward" : preferred.backward ? "backward" : "none";
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

std::unique_ptr<AttentionEngine> make_cudnn_attention(CudaScratch& /*scratch*/, CudaScratch& /*backward_scratch*/,
                                                      const CudnnOptions& /*options*/) {
  return std::make_unique<FaultyEngine>(cudnn.faults);
}

}  // namespace skrull

TEST_CASE("cuDNN takes whole bf16 sequences on the GPUs it has kernels for") {
  CHECK(cudnn_obstacle(usual_request()).empty());
  for (const int capability : {80, 86, 89, 90, 100, 103}) {
    CHECK(obstacle_of([&](CudnnRequest& r) { r.compute_capability = capability; }).empty());
  }
  for (const int capability : {75, 110, 120}) {
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

TEST_CASE("cuDNN takes backwards where its sums have an order, or need none") {
  const auto obstacle = [](int capability, bool deterministic) {
    return obstacle_of(
        [&](CudnnRequest& r) {
          r.compute_capability = capability;
          r.deterministic = deterministic;
        },
        usual_backward());
  };
  for (const bool deterministic : {false, true}) {
    for (const int capability : {100, 103}) CHECK(obstacle(capability, deterministic).empty());
    for (const int capability : {80, 89})
      CHECK_THAT(obstacle(capability, deterministic), ContainsSubstring("no backward"));
    CHECK_THAT(obstacle(120, deterministic), ContainsSubstring("compute capability"));
  }
  CHECK(obstacle(90, false).empty());
  CHECK_THAT(obstacle(90, true), ContainsSubstring("no fixed order"));

  for (const std::int64_t head_dim : {16, 64, 80, 128}) {
    CHECK(obstacle_of([&](CudnnRequest& r) { r.head_dim = head_dim; }, usual_backward()).empty());
  }
  for (const std::int64_t head_dim : {8, 72, 256}) {
    CHECK_THAT(obstacle_of([&](CudnnRequest& r) { r.head_dim = head_dim; }, usual_backward()),
               ContainsSubstring("multiple of"));
  }
  CHECK_THAT(obstacle_of([](CudnnRequest& r) { r.whole_sequences = false; }, usual_backward()),
             ContainsSubstring("part of a sequence"));
  CHECK_THAT(obstacle_of([](CudnnRequest& r) { r.out_dtype = DType::float32; }, usual_backward()),
             ContainsSubstring("float32"));
  CHECK_THAT(obstacle_of([](CudnnRequest& r) { r.aligned = false; }, usual_backward()), ContainsSubstring("16 bytes"));
}

TEST_CASE("a request says what a backward is made of") {
  Packed packed;
  const CudnnRequest request = cudnn_request(100, true, packed.backward());
  CHECK(request.compute_capability == 100);
  CHECK(request.backward);
  CHECK(request.deterministic);
  CHECK_FALSE(cudnn_request(100, false, packed.backward()).deterministic);
  CHECK(request.dtype == DType::bfloat16);
  CHECK(request.out_dtype == DType::bfloat16);
  CHECK(request.head_dim == 64);
  CHECK(request.whole_sequences);
  CHECK(request.aligned);
  AttentionBackward call = packed.backward();
  call.dout = packed.view(DType::bfloat16, 128, 384, 2);
  CHECK_FALSE(cudnn_request(100, true, call).aligned);
  call = packed.backward();
  call.out = packed.view(DType::float32, 128);
  CHECK(cudnn_request(100, true, call).out_dtype == DType::float32);
  packed.segments[1] = {5, 3, 0, 3, true};
  CHECK_FALSE(cudnn_request(100, true, packed.backward()).whole_sequences);
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
  const auto faulty = std::make_shared<FaultyEngine>(
      Faults{.forward = [](Stream& s, const AttentionForward& a) { overwrite(s, a.lse, 0, 0, 42.0F); }});
  const auto both_runs = [&] { return std::pair(faulty->forwards, faulty->backwards); };
  using Runs = std::pair<int, int>;
  const std::vector<AttentionSegment> segments = {{0, 16, 0, 16, true}};
  const auto run_both = [&](AttentionEngines& engines, DType dtype) {
    const Buffer q = device.allocate(dtype, 16, 64, "test");
    const Buffer out = device.allocate(dtype, 16, 64, "test");
    const Buffer lse = device.allocate(DType::float32, 16, 1, "test");
    const Buffer delta = device.allocate(DType::float32, 16, 1, "test");
    const Buffer gradient = device.allocate(DType::float32, 16, 64, "test");
    const TensorView rows = q.view(dtype, 16, 64);
    const AttentionForward forward = {.shape = {1, 1, 64, 0.125F},
                                      .segments = segments,
                                      .q = rows,
                                      .k = rows,
                                      .v = rows,
                                      .out = out.view(dtype, 16, 64),
                                      .lse = lse.view(DType::float32, 16, 1)};
    const TensorView sums = gradient.view(DType::float32, 16, 64);
    engines.run(stream, forward);
    float first_lse = -1;
    device.copy_to_host(stream, &first_lse, forward.lse.slice_rows(0, 1));
    engines.run(stream, AttentionBackward{.shape = forward.shape,
                                          .segments = segments,
                                          .q = rows,
                                          .k = rows,
                                          .v = rows,
                                          .out = forward.out,
                                          .dout = rows,
                                          .lse = forward.lse,
                                          .delta = delta.view(DType::float32, 16, 1),
                                          .dq = sums,
                                          .dk = sums,
                                          .dv = sums});
    stream.synchronize();
    return first_lse;
  };
  AttentionEngines forward_alone({.forward = faulty, .backward = nullptr});
  CHECK(run_both(forward_alone, DType::bfloat16) == 42.0F);
  CHECK(both_runs() == Runs(1, 0));
  CHECK(run_both(forward_alone, DType::float32) == 0.0F);  // one key, score 0
  CHECK(both_runs() == Runs(1, 0));

  AttentionEngines both({.forward = faulty, .backward = faulty});
  CHECK(run_both(both, DType::bfloat16) == 42.0F);
  CHECK(both_runs() == Runs(2, 1));
  CHECK(run_both(both, DType::float32) == 0.0F);
  CHECK(both_runs() == Runs(2, 1));
  AttentionEngines backward_alone({.forward = nullptr, .backward = faulty});
  CHECK(run_both(backward_alone, DType::bfloat16) == 0.0F);
  CHECK(both_runs() == Runs(2, 2));
}

TEST_CASE("the self-check passes an engine that agrees and names what differs") {
  Device& device = gpu();
  const auto native = make_native_attention();
  const auto problem = [&](std::function<void(Stream&, const AttentionForward&)> fault) {
    FaultyEngine engine({.forward = std::move(fault)});
    std::string text = compare_attention_forward(device, engine, *native);
    CHECK(engine.forwards > 0);
    CHECK(engine.backwards == 0);
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

TEST_CASE("the self-check of a backward finds what is wrong with gradients, and other bits where none may be") {
  Device& device = gpu();
  const auto native = make_native_attention();
  const auto problem = [&](std::function<void(Stream&, const AttentionBackward&)> fault, bool deterministic = false) {
    FaultyEngine engine({.backward = std::move(fault)});
    std::string text = compare_attention_backward(device, engine, *native, deterministic);
    CHECK(engine.backwards > 0);
    return text;
  };
  CHECK(problem({}).empty());
  CHECK(problem({}, true).empty());
  CHECK_THAT(problem(wrong_gradient), ContainsSubstring("the gradient of keys at row 400, column 5 is 3"));
  CHECK_THAT(problem([](Stream& s, const AttentionBackward& a) { overwrite(s, a.dq, 980, 255, 2.0F); }),
             ContainsSubstring("the gradient of queries at row 980, column 255 is 2"));
  CHECK_THAT(problem([](Stream& s, const AttentionBackward& a) { overwrite(s, a.dv, 2, 0, 0.0F); }),
             ContainsSubstring("the gradient of values at row 2, column 0 is 0 where 0.25 was expected"));
  // As small as what bf16 gives, but not the same again.
  int runs = 0;
  const auto wavering = [&](Stream& s, const AttentionBackward& a) {
    if (++runs % 2 == 0) overwrite(s, a.dv, 2, 0, std::nextafter(0.25F, 1.0F));
  };
  CHECK(problem(wavering).empty());
  runs = 0;
  CHECK_THAT(problem(wavering, true), ContainsSubstring("other bits"));
}

TEST_CASE("the self-check allows gradients that were rounded to bf16 before they were added") {
  Device& device = gpu();
  const auto native = make_native_attention();
  FaultyEngine engine({.backward = [&](Stream& stream, const AttentionBackward& a) {
    for (const TensorView& gradient : {a.dq, a.dk, a.dv}) {
      const auto count = static_cast<std::size_t>(gradient.elements());
      std::vector<float> values(count);
      device.copy_to_host(stream, values.data(), gradient);
      stream.synchronize();
      const float before = values[0];  // of no sequence
      for (float& value : values) value = before + static_cast<float>(bfloat16(value - before));
      device.copy_to_device(stream, gradient, values.data());
    }
  }});
  CHECK(compare_attention_backward(device, engine, *native, true).empty());
}

TEST_CASE("the self-check says when an engine does not take such sequences") {
  Device& device = gpu();
  const auto native = make_native_attention();
  FaultyEngine engine({}, true);  // deterministic, on compute capability 9
  CHECK_THAT(compare_attention_backward(device, engine, *native, true), ContainsSubstring("no fixed order"));
  CHECK(engine.backwards == 0);
}

TEST_CASE("which engine is preferred follows from option, GPU, build and check") {
  using Choice = AttentionEngineChoice;
  cudnn = {};
  CHECK(directions(preferred(Choice::automatic, gpu_of(9, 0))) == "both");
  CHECK(directions(preferred(Choice::automatic, gpu_of(9, 0), true)) == "forward");
  CHECK(directions(preferred(Choice::cudnn, gpu_of(10, 0), true)) == "both");
  CHECK(directions(preferred(Choice::native, gpu_of(9, 0))) == "none");
  CHECK(directions(preferred(Choice::automatic, gpu_of(8, 0))) == "none");
  CHECK(directions(preferred(Choice::cudnn, gpu_of(8, 6))) == "forward");
  CHECK_THROWS_WITH(preferred(Choice::cudnn, gpu_of(7, 5)), ContainsSubstring("GPU 0 has 7.5"));
  CHECK_THROWS_AS(preferred(Choice::cudnn, gpu_of(12, 0)), InvalidInput);

  cudnn.problem = "it is not there";
  CHECK(directions(preferred(Choice::automatic, gpu_of(9, 0))) == "none");
  CHECK_THROWS_WITH(preferred(Choice::cudnn, gpu_of(9, 0)), ContainsSubstring("it is not there"));

  // Each direction stands for itself.
  cudnn = {"", {.forward = wrong_result}};
  CHECK(directions(preferred(Choice::automatic, gpu_of(9, 0))) == "backward");
  cudnn = {"", {.backward = wrong_gradient}};
  CHECK(directions(preferred(Choice::cudnn, gpu_of(10, 0), true)) == "forward");
  cudnn = {"", {.forward = [](Stream& /*s*/, const AttentionForward& /*a*/) { throw_run_failure("no kernel image"); }}};
  CHECK(directions(preferred(Choice::cudnn, gpu_of(9, 0), true)) == "none");
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
    const std::int64_t most_rows = round % 2 == 0 ? 3000 : std::numeric_limits<std::int64_t>::max();
    for (const SequenceGroup& group : attention::group_sequences(segments, most_rows)) {
      REQUIRE((group.count == 1 || group.rows <= most_rows));
      int rows = 0;
      REQUIRE(group.count >= 1);
      REQUIRE(group.count <= group.slots);
      REQUIRE(group.slots <= SequenceGroup::most);
      REQUIRE(group.slots < 2 * group.count);
      REQUIRE((group.length & (group.length - 1)) == 0);
      for (int i = 0; i < group.count; ++i) {
        const int length = group.lengths[i];
        REQUIRE(length <= group.length);
        REQUIRE(group.gathered[i] == rows);
        rows += length;
        REQUIRE((group.length == 512 || 2 * length > group.length));
        if (i > 0) REQUIRE(group.begins[i] > group.begins[i - 1]);
        REQUIRE(found.emplace(group.begins[i], length).second);
      }
      REQUIRE(rows == group.rows);
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
    constexpr std::int64_t far = std::int64_t{1} << 40;  // offsets beyond 32 bits
    const std::vector<SequenceRows> tensors = {{4608}, {28}, {3584, true}, {far}, {far, true}};
    const auto count_of_tensors = static_cast<int>(tensors.size());
    const std::int64_t bytes = SequenceTables::bytes(group, count_of_tensors);
    const Buffer memory = device.allocate(bytes, "test");
    const SequenceTables tables(memory.data(), group, count_of_tensors);
    tables.fill(cuda_stream(stream), group, tensors);
    std::vector<char> host(static_cast<std::size_t>(bytes));
    device.copy_to_host(stream, host.data(), memory.view(DType::uint8, 1, bytes));
    stream.synchronize();
    const auto on_host = [&](const auto* at) {
      return reinterpret_cast<decltype(at)>(
          host.data() + (reinterpret_cast<const char*>(at) - static_cast<const char*>(memory.data())));
    };
    for (int tensor = 0; tensor < count_of_tensors; ++tensor) {
      const std::int64_t* offsets = on_host(tables.offsets(tensor));
      const auto& [stride, gathered] = tensors[static_cast<std::size_t>(tensor)];
      const int last = group.count - 1;
      const int end = gathered ? group.rows : group.begins[last] + group.lengths[last];
      for (int i = 0; i <= group.slots; ++i) {
        const std::int64_t row = i > last ? end : gathered ? group.gathered[i] : group.begins[i];
        REQUIRE(offsets[i] == row * stride);
      }
    }
    const std::int32_t* lengths = on_host(tables.lengths());
    for (int i = 0; i < group.slots; ++i) REQUIRE(lengths[i] == (i < group.count ? group.lengths[i] : 0));
  }
}

TEST_CASE("rows without gaps are added to where their sequences lie, and to no other row") {
  Device& device = gpu();
  Stream& stream = device.compute_stream();
  for (const std::int64_t columns : {8, 24, 7}) {
    for (const std::int64_t count : {1, 3, 40}) {
      Rng rng(static_cast<std::uint64_t>(count * columns), "gathered");
      auto segments = random_sequences(rng, count, 20);
      for (AttentionSegment& s : segments) s.q_len = s.k_len = std::max<std::int64_t>(s.q_len - 1, 0);
      segments.push_back({2000, 5, 2000, 5, true});
      const SequenceGroup group = attention::group_sequences(segments).front();
      constexpr std::int64_t rows = 2010;
      const std::int64_t stride = columns + 8;  // what lies beside the columns stays, too
      std::vector<float> expected(static_cast<std::size_t>(rows * stride));
      for (float& value : expected) value = static_cast<float>(rng.uniform());
      const Buffer target = device.allocate(DType::float32, rows, stride, "test");
      const TensorView whole = target.view(DType::float32, rows, stride);
      device.copy_to_device(stream, whole, expected.data());

      std::vector<bfloat16> values(static_cast<std::size_t>(group.rows * columns));
      for (bfloat16& value : values) value = bfloat16(static_cast<float>(rng.uniform()));
      const Buffer gathered = device.allocate(DType::bfloat16, group.rows, columns, "test");
      const TensorView source = gathered.view(DType::bfloat16, group.rows, columns);
      device.copy_to_device(stream, source, values.data());
      std::size_t next = 0;
      for (int i = 0; i < group.count; ++i) {
        for (std::int64_t row = group.begins[i]; row < group.begins[i] + group.lengths[i]; ++row) {
          for (std::int64_t column = 0; column < columns; ++column) {
            expected[static_cast<std::size_t>(row * stride + column)] += static_cast<float>(values[next++]);
          }
        }
      }
      attention::add_gathered(cuda_stream(stream), group, source, whole.slice_cols(0, columns));
      std::vector<float> found(expected.size());
      device.copy_to_host(stream, found.data(), whole);
      stream.synchronize();
      REQUIRE(found == expected);
    }
  }
}

// The last one: of what ran before.
TEST_CASE("the cases above launch the kernels of the sequence tables") {
  for (const std::string& name : test::kernels_not_launched()) {
    CHECK(name.find("fill_tables") == std::string::npos);
    CHECK(name.find("AddGathered") == std::string::npos);
  }
}

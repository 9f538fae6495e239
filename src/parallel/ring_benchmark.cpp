#include "skrull/parallel/ring_benchmark.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "skrull/comm/emulated_network.h"
#include "skrull/core/error.h"
#include "skrull/core/median.h"
#include "skrull/core/rng.h"
#include "skrull/device/stream_stopwatch.h"
#include "skrull/parallel/ring_attention.h"
#include "skrull/schedule/zigzag.h"

namespace skrull {
namespace {

constexpr LinkRate fast_link{1e15, 0.0};

/// `local_sequences` of together `local_tokens` on every rank, and one of `ring_tokens` over all.
MicroBatch make_batch(std::int64_t local_tokens, std::int64_t local_sequences, std::int64_t ring_tokens, int ranks,
                      int rank) {
  MicroBatch batch;
  for (std::int64_t i = 0; i < local_sequences; ++i) {
    const std::int64_t end = local_tokens * (i + 1) / local_sequences;
    batch.local.push_back({batch.tokens(), end - batch.tokens(), i});
    batch.ids.resize(static_cast<std::size_t>(end));
  }
  if (ring_tokens == 0) return batch;
  Ring ring;
  ring.ranks.resize(static_cast<std::size_t>(ranks));
  std::iota(ring.ranks.begin(), ring.ranks.end(), 0);
  ring.position = rank;
  ring.shards.push_back({batch.tokens(), zigzag_shard(ring_tokens, ranks, rank), ring_tokens, local_sequences});
  batch.ids.resize(batch.ids.size() + static_cast<std::size_t>(ring.shards.front().length()));
  batch.rings.push_back(std::move(ring));
  return batch;
}

/// Passes over one layer's attention of random values.
class AttentionPasses {
 public:
  AttentionPasses(const RingBenchmarkOptions& options, std::int64_t max_tokens, Device& device)
      : options_(options), device_(device) {
    const AttentionShape& shape = options.shape;
    query_ = shape.num_heads * shape.head_dim;
    key_ = shape.num_kv_heads * shape.head_dim;
    max_tokens_ = max_tokens;
    Rng rng(1, "ring benchmark");
    const auto random = [&](std::int64_t cols) {
      std::vector<float> values(static_cast<std::size_t>(max_tokens * cols));
      for (float& value : values) value = static_cast<float>(rng.uniform()) - 0.5F;
      Buffer exact = device.allocate(DType::float32, max_tokens, cols, "activations");
      device.copy_to_device(device.compute_stream(), exact.view(DType::float32, max_tokens, cols), values.data());
      if (options.compute_dtype == DType::float32) return exact;
      Buffer rounded = device.allocate(options.compute_dtype, max_tokens, cols, "activations");
      device.ops().cast(device.compute_stream(), exact.view(DType::float32, max_tokens, cols),
                        rounded.view(options.compute_dtype, max_tokens, cols));
      device.compute_stream().synchronize();
      return rounded;
    };
    q_ = random(query_);
    k_ = random(key_);
    v_ = random(key_);
    dout_ = random(query_);
    out_ = device.allocate(options.compute_dtype, max_tokens, query_, "activations");
    lse_ = device.allocate(DType::float32, max_tokens, shape.num_heads, "activations");
    dq_ = device.allocate(DType::float32, max_tokens, query_, "activations");
    dk_ = device.allocate(DType::float32, max_tokens, key_, "activations");
    dv_ = device.allocate(DType::float32, max_tokens, key_, "activations");
  }

  struct Times {
    double seconds = 0.0;  ///< from when all ranks have begun until this rank is done
    double waited = 0.0;
  };
  struct Pass {
    Times forward;
    Times backward;
  };

  Pass run(const MicroBatch& batch, MicroBatchAttention& attention, Communicator& context) {
    attention.begin(batch);
    const std::int64_t rows = batch.tokens();
    const auto view = [&](const Buffer& buffer, DType dtype, std::int64_t cols) {
      return buffer.view(dtype, max_tokens_, cols).slice_rows(0, rows);
    };
    const DType dtype = options_.compute_dtype;
    const TensorView q = view(q_, dtype, query_);
    const TensorView k = view(k_, dtype, key_);
    const TensorView v = view(v_, dtype, key_);
    const TensorView out = view(out_, dtype, query_);
    const TensorView lse = view(lse_, DType::float32, options_.shape.num_heads);
    Pass pass;
    pass.forward = timed(context, [&] { attention.forward(0, q, k, v, out, lse); });
    pass.backward = timed(context, [&] {
      attention.backward(0, q, k, v, out, lse, view(dout_, dtype, query_), view(dq_, DType::float32, query_),
                         view(dk_, DType::float32, key_), view(dv_, DType::float32, key_));
    });
    return pass;
  }

 private:
  template <class Work>
  Times timed(Communicator& context, const Work& work) {
    start_together(device_, context);
    device_.timeline().take();
    const StreamStopwatch watch(device_.compute_stream());
    work();
    const double seconds = watch.seconds();
    return {seconds, sum_spans(device_.timeline().take()).waiting};
  }

  RingBenchmarkOptions options_;
  Device& device_;
  std::int64_t query_ = 0;
  std::int64_t key_ = 0;
  std::int64_t max_tokens_ = 0;
  Buffer q_, k_, v_, dout_, out_, lse_, dq_, dk_, dv_;
};

class RingBench {
 public:
  RingBench(const RingBenchmarkOptions& options, Device& device, Communicator& world)
      : options_(options),
        device_(device),
        world_(world),
        control_(world, device.communication_stream()),
        max_tokens_(std::max(options.local_tokens + largest_zigzag_shard(options.ring_tokens, world.size()),
                             options.alone_tokens)),
        passes_(options, max_tokens_, device) {
    device.timeline().set_detail(TimelineDetail::communication_and_waits);
  }

  RingBenchmark run() {
    RingBenchmark result;
    result.ranks = world_.size();
    const Sizes both{options_.local_tokens, options_.ring_tokens};
    const Means local = measure({options_.local_tokens, 0}, fast_link);
    const Means ring = measure({0, options_.ring_tokens}, fast_link);
    result.forward = hidden(both, local.forward, local.forward, ring.forward, false);
    result.backward = hidden(both, local.backward, local.backward, ring.backward, true);
    result.forward_alone = hidden({0, options_.ring_tokens}, 2 * ring.forward, 0.0, ring.forward, false);
    result.backward_alone = hidden({0, options_.ring_tokens}, 2 * ring.backward, 0.0, ring.backward, true);
    const Means whole = measure({options_.alone_tokens, 0, 1}, fast_link);
    const Means shared = measure({0, options_.alone_tokens}, fast_link);
    result.one_rank_forward = whole.forward;
    result.one_rank_backward = whole.backward;
    result.ring_forward = shared.slowest_forward;
    result.ring_backward = shared.slowest_backward;
    return result;
  }

 private:
  struct Sizes {
    std::int64_t local_tokens = 0;
    std::int64_t ring_tokens = 0;
    std::int64_t local_sequences = 0;  ///< 0: as the options say
  };
  /// Medians over turns.
  struct Means {
    double forward = 0.0;
    double backward = 0.0;
    double forward_waited = 0.0;
    double backward_waited = 0.0;
    double slowest_forward = 0.0;
    double slowest_backward = 0.0;
  };

  Means measure(const Sizes& sizes, const LinkRate& link) {
    const auto context = make_emulated_communicator(world_.split(0, world_.rank()), {link, link, 1});
    const MicroBatchAttentionOptions attention_options{options_.shape, options_.compute_dtype, max_tokens_, true};
    RingAttention attention(attention_options, device_, *context);
    const std::int64_t sequences = sizes.local_tokens == 0     ? 0
                                   : sizes.local_sequences > 0 ? sizes.local_sequences
                                                               : options_.local_sequences;
    const MicroBatch batch = make_batch(sizes.local_tokens, sequences, sizes.ring_tokens, world_.size(), world_.rank());
    std::array<std::vector<double>, 6> values;
    for (std::int64_t turn = 0; turn <= options_.turns; ++turn) {
      const AttentionPasses::Pass pass = passes_.run(batch, attention, *context);
      std::array sums{pass.forward.seconds, pass.backward.seconds, pass.forward.waited, pass.backward.waited};
      control_.sum(sums);
      const std::array slowest{control_.max(pass.forward.seconds), control_.max(pass.backward.seconds)};
      if (turn == 0) continue;  // warm-up
      for (std::size_t i = 0; i < sums.size(); ++i) values[i].push_back(sums[i] / world_.size());
      for (std::size_t i = 0; i < slowest.size(); ++i) values[4 + i].push_back(slowest[i]);
    }
    return {median(values[0]), median(values[1]), median(values[2]),
            median(values[3]), median(values[4]), median(values[5])};
  }

  /// With a link on which the transfers of one pass take `transfer` seconds.
  HiddenTransfers hidden(const Sizes& sizes, double transfer, double local, double own, bool backward) {
    const int hops = world_.size() - 1;
    const auto elements = static_cast<double>(largest_zigzag_shard(sizes.ring_tokens, world_.size()) * 2 *
                                              options_.shape.num_kv_heads * options_.shape.head_dim);
    // Forward: keys and values. Backward: these again, and their gradients in fp32.
    const auto bytes = elements * static_cast<double>(size_of(options_.compute_dtype) + (backward ? 4 : 0));
    const Means means = measure(sizes, {hops * bytes / transfer, 0.0});
    HiddenTransfers result;
    result.local = local;
    result.transfer = transfer;
    // The last hop of a forward is worked on when all has arrived; that of a backward while gradients go home.
    result.beside = backward ? own : own * hops / world_.size();
    result.exposed = backward ? means.backward_waited : means.forward_waited;
    return result;
  }

  RingBenchmarkOptions options_;
  Device& device_;
  Communicator& world_;
  ControlChannel control_;
  std::int64_t max_tokens_;
  AttentionPasses passes_;
};

}  // namespace

RingBenchmark bench_ring_attention(const RingBenchmarkOptions& options, Device& device, Communicator& world) {
  if (world.size() < 2) throw_invalid_input("a ring needs 2 ranks or more: start with mpirun -np 2 or 4");
  return RingBench(options, device, world).run();
}

}  // namespace skrull

#include "skrull/train/zero_overlap_benchmark.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "random_batch.h"
#include "skrull/comm/emulated_network.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/model/model_io.h"
#include "skrull/parallel/local_attention.h"
#include "skrull/parallel/trainable_parameters.h"
#include "timed_step.h"

namespace skrull {
namespace {

/// What one step took, on this rank's clock.
struct StepSpans {
  std::vector<TimelineSpan> spans;
  double compute = 0;
};

bool is_of_parameters(const TimelineSpan& span) {
  return std::string_view(span.label.name).find("parameters") != std::string_view::npos;
}

/// Steps over one link.
class LinkBench {
 public:
  LinkBench(const Qwen2Config& model, const ZeroOverlapOptions& options, const MpiSession& session, Device& device,
            double bytes_per_second)
      : options_(options),
        device_(device),
        world_(make_emulated_communicator(session.world(), {{bytes_per_second, 0.0}, {bytes_per_second, 0.0}, 1})),
        control_(*world_, device_.communication_stream()),
        table_(model),
        transformer_(model, transformer_options(), device_),
        attention_(attention_shape(model), options.tokens, true, device_),
        batch_(random_batch(mixed_lengths(options.tokens), model.vocab_size)),
        state_(make_trainable_parameters(
            table_, {.compute_dtype = options.compute_dtype, .zero_stage = options.zero_stage}, device_, *world_)) {
    attention_.begin(batch_);
    state_->set_values(
        [&](const BlockOnHost& block) { initialize_parameters(1, model.initializer_range, table_, block); });
    device_.timeline().set_detail(TimelineDetail::communication_and_waits);
  }

  ZeroOverlapBenchmark run() {
    ZeroOverlapBenchmark result;
    result.ranks = world_->size();
    start_together(device_, *world_);
    run_step();  // warms up
    for (std::int64_t i = 0; i < options_.steps; ++i) add(run_step(), result);
    const auto steps = static_cast<double>(options_.steps);
    result.compute_seconds /= steps;
    for (HiddenCommunication* part : {&result.gathers, &result.scatters}) {
      part->transfer /= steps;
      part->exposed /= steps;
      result.all.transfer += part->transfer;
      result.all.exposed += part->exposed;
    }
    return result;
  }

 private:
  TransformerOptions transformer_options() const {
    TransformerOptions options;
    options.compute_dtype = options_.compute_dtype;
    options.max_tokens = options_.tokens;
    options.recompute = options_.recompute;
    return options;
  }

  StepSpans run_step() {
    Stream& compute = device_.compute_stream();
    device_.timeline().take();
    state_->begin_step(options_.micro_batches);
    const Event begin = compute.record();
    for (std::int64_t i = 0; i < options_.micro_batches; ++i) {
      device_.timeline().set_micro_batch(i);
      transformer_.forward_backward(batch_, *state_, attention_, *state_);
    }
    const Event end = compute.record();
    device_.timeline().set_micro_batch(-1);
    state_->finish_gradients();
    state_->gradient_norm();
    state_->update({.learning_rate = 1e-6}, 1.0);
    end.synchronize();
    StepSpans step{device_.timeline().take(), end.seconds() - begin.seconds()};
    step.compute -= sum_spans(step.spans).waiting_in_micro_batches;
    return step;
  }

  /// Every rank queues the same operations in the same order; who comes last to one waits for nobody.
  std::vector<double> least_seconds(const std::vector<double>& seconds) {
    std::vector<double> least = seconds;
    for (const std::string& text : control_.gather(Json(seconds).dump())) {
      const auto of_rank = Json::parse(text).get<std::vector<double>>();
      require(of_rank.size() == least.size(), "{} operations on one rank, {} on another", least.size(), of_rank.size());
      std::transform(least.begin(), least.end(), of_rank.begin(), least.begin(),
                     [](double a, double b) { return std::min(a, b); });
    }
    return least;
  }

  void add(const StepSpans& step, ZeroOverlapBenchmark& result) {
    std::vector<double> seconds;
    for (const TimelineSpan& span : step.spans) {
      if (span.kind == SpanKind::communication) seconds.push_back(span.seconds());
    }
    const std::vector<double> transfers = least_seconds(seconds);
    std::size_t next = 0;
    double waits[2] = {0, 0};
    for (const TimelineSpan& span : step.spans) {
      HiddenCommunication& part = is_of_parameters(span) ? result.gathers : result.scatters;
      if (span.kind == SpanKind::communication) part.transfer += transfers[next++];
      if (span.kind == SpanKind::wait) waits[is_of_parameters(span) ? 0 : 1] += span.seconds();
    }
    result.gathers.exposed += control_.sum(waits[0]) / world_->size();
    result.scatters.exposed += control_.sum(waits[1]) / world_->size();
    result.compute_seconds += control_.sum(step.compute) / world_->size();
  }

  ZeroOverlapOptions options_;
  Device& device_;
  std::unique_ptr<Communicator> world_;
  ControlChannel control_;
  ParameterTable table_;
  Transformer transformer_;
  LocalAttention attention_;
  MicroBatch batch_;
  std::unique_ptr<TrainableParameters> state_;
};

}  // namespace

ZeroOverlapBenchmark bench_zero_overlap(const Qwen2Config& model, const ZeroOverlapOptions& options,
                                        const MpiSession& session) {
  if (session.size() < 2) throw_invalid_input("nothing is divided on one rank: start with mpirun -np 2 or 4");
  spread_over_cores(session.local_rank(), session.local_size());
  const std::unique_ptr<Device> device = make_cpu_device(1, TimeSource::processor);
  constexpr double trial_rate = 1e9;
  const ZeroOverlapBenchmark trial = LinkBench(model, options, session, *device, trial_rate).run();
  const double rate = trial_rate * trial.all.transfer / (options.transfer_share * trial.compute_seconds);
  ZeroOverlapBenchmark result = LinkBench(model, options, session, *device, rate).run();
  result.bytes_per_second = rate;
  return result;
}

}  // namespace skrull

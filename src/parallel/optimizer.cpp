#include "optimizer.h"

#include <vector>

#include "skrull/core/error.h"
#include "skrull/device/ops.h"
#include "skrull/parallel/shard_layout.h"

namespace skrull {
namespace {

/// What both kinds know: the runs of elements that agree on weight decay, and the arguments of an update.
class UpdateByRuns : public Optimizer {
 public:
  UpdateByRuns(const ParameterTable& table, const StateMemory& memory, Device& device)
      : memory_(memory), device_(device) {
    for (int block = 0; block < table.block_count(); ++block) {
      runs_.push_back(decay_runs(table, block, memory.part(block)));
    }
  }

  void begin_update(const AdamWSettings& settings, double gradient_scale, std::int64_t step) override {
    settings_ = settings;
    gradient_scale_ = gradient_scale;
    step_ = step;
  }

 protected:
  int blocks() const { return static_cast<int>(runs_.size()); }

  /// Queues the update of a part. `compute_copy` may be empty.
  void update_runs(int block, Ops& ops, Stream& stream, ConstTensorView gradient, TensorView compute_copy) const {
    for (const DecayRun& run : runs_[static_cast<std::size_t>(block)]) {
      const std::int64_t begin = run.part.begin - memory_.part(block).begin;
      const auto slice = [&](const auto& view) { return view ? view.slice_cols(begin, run.part.count) : view; };
      ops.adamw(stream, {.parameter = slice(memory_.master(block)),
                         .gradient = slice(gradient),
                         .first_moment = slice(memory_.first_moment(block)),
                         .second_moment = slice(memory_.second_moment(block)),
                         .compute_copy = slice(compute_copy),
                         .learning_rate = settings_.learning_rate,
                         .beta1 = settings_.beta1,
                         .beta2 = settings_.beta2,
                         .epsilon = settings_.epsilon,
                         .weight_decay = run.weight_decay ? settings_.weight_decay : 0.0,
                         .gradient_scale = gradient_scale_,
                         .step = step_});
    }
  }

  const StateMemory& memory_;
  Device& device_;

 private:
  std::vector<std::vector<DecayRun>> runs_;  // of the part, by block
  AdamWSettings settings_;
  double gradient_scale_ = 1.0;
  std::int64_t step_ = 0;
};

class DeviceOptimizer final : public UpdateByRuns {
 public:
  DeviceOptimizer(const ParameterTable& table, const StateMemory& memory, Device& device)
      : UpdateByRuns(table, memory, device), written_(static_cast<std::size_t>(table.block_count())) {}

  void gradient_summed(int /*block*/, ConstTensorView /*sum*/) override {}

  void update(int block, ConstTensorView gradient) override {
    update_runs(block, device_.ops(), device_.compute_stream(), gradient,
                memory_.computes_with_master() ? TensorView() : memory_.compute(block));
    written_[static_cast<std::size_t>(block)] = device_.compute_stream().record();
  }

  void masters_written() override {
    for (int block = 0; block < blocks(); ++block) {
      if (memory_.computes_with_master() || memory_.part(block).count == 0) continue;
      device_.ops().cast(device_.compute_stream(), memory_.master(block), memory_.compute(block));
    }
    const Event written = device_.compute_stream().record();
    for (Event& event : written_) event = written;
  }

  Event written(int block) override { return written_.at(static_cast<std::size_t>(block)); }
  bool writes_late() const override { return false; }
  void synchronize() override {}

 private:
  std::vector<Event> written_;  // by block
};

/// States in host memory (ZeRO-Offload, Ren et al. 2021). Gradients go there as soon as they are summed, behind the
/// rest of the backward; a queue of the host updates block after block, while the device goes on to the next forward; a
/// block's new values come back when they are asked for.
class HostOptimizer final : public UpdateByRuns {
 public:
  HostOptimizer(const ParameterTable& table, const StateMemory& memory, Device& device)
      : UpdateByRuns(table, memory, device), blocks_(static_cast<std::size_t>(table.block_count())) {}

  void gradient_summed(int block, ConstTensorView sum) override {
    if (sum.empty()) return;
    Stream& communication = device_.communication_stream();
    communication.wait(at(block).updated);  // which reads the gradients of before
    const auto span = device_.timeline().scope(SpanKind::communication, communication, {"gradients to host"});
    device_.copy_to_host(communication, memory_.host_gradient(block).data(), sum);
    at(block).gradient_arrived = communication.record();
  }

  void begin_update(const AdamWSettings& settings, double gradient_scale, std::int64_t step) override {
    UpdateByRuns::begin_update(settings, gradient_scale, step);
    last_read_ = device_.compute_stream().record();
  }

  void update(int block, ConstTensorView /*gradient*/) override {
    Stream& host = host_->compute_stream();
    host.wait(at(block).gradient_arrived);
    host.wait(at(block).arrived);  // the values of before, which this writes over
    const bool copies = memory_.host_compute(block).dtype() != DType::float32;
    update_runs(block, host_->ops(), host, memory_.host_gradient(block),
                copies ? memory_.host_compute(block) : TensorView());
    made_on_host(block);
  }

  void masters_written() override {
    last_read_ = device_.compute_stream().record();
    for (int block = 0; block < blocks(); ++block) {
      if (memory_.part(block).count > 0 && memory_.host_compute(block).dtype() != DType::float32) {
        host_->ops().cast(host_->compute_stream(), memory_.master(block), memory_.host_compute(block));
      }
      made_on_host(block);
    }
  }

  Event written(int block) override {
    if (at(block).on_host) bring(block);
    return at(block).arrived;
  }
  bool writes_late() const override { return true; }
  void synchronize() override { host_->compute_stream().synchronize(); }

 private:
  struct Block {
    Event gradient_arrived;
    Event updated;         ///< on the host's queue
    bool on_host = false;  ///< newer than what the device has
    Event arrived;
  };
  Block& at(int block) { return blocks_.at(static_cast<std::size_t>(block)); }

  void made_on_host(int block) {
    at(block).updated = host_->compute_stream().record();
    at(block).on_host = true;
  }

  void bring(int block) {
    Stream& communication = device_.communication_stream();
    communication.wait(last_read_);
    communication.wait(at(block).updated);
    const auto span = device_.timeline().scope(SpanKind::communication, communication, {"parameters from host"});
    device_.copy_to_device(communication, memory_.compute(block), memory_.host_compute(block).data());
    at(block).arrived = communication.record();
    at(block).on_host = false;
  }

  std::vector<Block> blocks_;
  Event last_read_;                                              ///< of the values of before
  std::unique_ptr<Device> host_ = make_background_cpu_device();  ///< last: its queue uses the rest
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const ParameterTable& table, const StateMemory& memory, Device& device) {
  if (memory.on_host()) return std::make_unique<HostOptimizer>(table, memory, device);
  return std::make_unique<DeviceOptimizer>(table, memory, device);
}

}  // namespace skrull

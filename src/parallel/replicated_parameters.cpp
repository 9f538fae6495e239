#include <cmath>
#include <utility>
#include <vector>

#include "block_ledger.h"
#include "block_staging.h"
#include "skrull/core/error.h"
#include "skrull/device/ops.h"
#include "skrull/parallel/shard_layout.h"
#include "skrull/parallel/trainable_parameters.h"

namespace skrull {
namespace {

constexpr const char* parameters_category = "parameters";
constexpr const char* gradients_category = "gradients";
constexpr const char* optimizer_category = "optimizer state";

class ReplicatedParameters final : public TrainableParameters {
 public:
  ReplicatedParameters(const ParameterTable& table, const TrainableParametersOptions& options, Device& device,
                       Communicator& communicator);

  const ParameterTable& table() const override { return table_; }

  ConstTensorView acquire(int block) override;
  void release(int block) override { ledger_.release(block); }
  TensorView accumulator(int block) override;
  void ready(int block) override;

  void begin_step(std::int64_t micro_batches) override;
  void finish_gradients() override;
  double gradient_norm() override;
  void update(const AdamWSettings& settings, double gradient_scale) override;

  std::int64_t updates() const override { return updates_; }
  void restore(std::int64_t updates) override;
  void set_values(const std::function<void(const BlockOnHost&)>& fill) override;
  void get_values(const std::function<void(const BlockOnHost&)>& use) override;
  OwnedState owned(int block) override;

 private:
  struct Block {
    Buffer master;
    Buffer compute_copy;  // nothing when the master is in the compute dtype
    Buffer gradient;
    Buffer first_moment;
    Buffer second_moment;
    std::vector<DecayRun> runs;
  };

  Block& at(int block) { return blocks_.at(static_cast<std::size_t>(block)); }
  TensorView view(const Buffer& buffer, int block) const {
    return buffer.view(DType::float32, 1, table_.block_elements(block));
  }
  TensorView compute_copy(int block);
  void update_run(int block, const DecayRun& run, const AdamWSettings& settings, double gradient_scale);
  void zero_on_first_use(int block);
  void refresh_compute_copies();
  void with_host_blocks(const std::function<void(const BlockOnHost&)>& work, BlockStaging::Access access);

  ParameterTable table_;
  TrainableParametersOptions options_;
  Device& device_;
  Communicator& communicator_;
  BlockLedger ledger_;
  std::vector<Block> blocks_;
  Buffer squares_;  // one fp64
  std::int64_t updates_ = 0;
};

bool has_compute_copy(const TrainableParametersOptions& options) {
  return options.compute_dtype != DType::float32;
}

ReplicatedParameters::ReplicatedParameters(const ParameterTable& table, const TrainableParametersOptions& options,
                                           Device& device, Communicator& communicator)
    : table_(table), options_(options), device_(device), communicator_(communicator), ledger_(table.block_count()) {
  require(options.compute_dtype == DType::float32 || options.compute_dtype == DType::bfloat16,
          "parameters in {}, expected float32 or bfloat16", name_of(options.compute_dtype));
  const auto allocate = [&](bool wanted, DType dtype, std::int64_t elements, const char* category) {
    return wanted ? device_.allocate(dtype, 1, elements, category) : Buffer();
  };
  for (int index = 0; index < table_.block_count(); ++index) {
    const std::int64_t elements = table_.block_elements(index);
    Block block;
    block.master = allocate(true, DType::float32, elements, parameters_category);
    block.compute_copy = allocate(has_compute_copy(options_), options_.compute_dtype, elements, parameters_category);
    block.gradient = allocate(options_.training, DType::float32, elements, gradients_category);
    block.first_moment = allocate(options_.training, DType::float32, elements, optimizer_category);
    block.second_moment = allocate(options_.training, DType::float32, elements, optimizer_category);
    block.runs = decay_runs(table_, index, {0, elements});
    blocks_.push_back(std::move(block));
  }
  squares_ = allocate(options_.training, DType::float64, 1, gradients_category);
}

TensorView ReplicatedParameters::compute_copy(int block) {
  if (!has_compute_copy(options_)) return {};
  return at(block).compute_copy.view(options_.compute_dtype, 1, table_.block_elements(block));
}

ConstTensorView ReplicatedParameters::acquire(int block) {
  ledger_.acquire(block);
  if (has_compute_copy(options_)) return compute_copy(block);
  return view(at(block).master, block);
}

void ReplicatedParameters::begin_step(std::int64_t micro_batches) {
  require(options_.training, "these parameters were set up for evaluation: there is no memory to train them");
  ledger_.begin_step(micro_batches);
}

void ReplicatedParameters::zero_on_first_use(int block) {
  if (ledger_.open(block)) device_.ops().fill_zero(device_.compute_stream(), view(at(block).gradient, block));
}

TensorView ReplicatedParameters::accumulator(int block) {
  zero_on_first_use(block);
  return view(at(block).gradient, block);
}

void ReplicatedParameters::ready(int block) {
  zero_on_first_use(block);  // nothing was added: still a sum
  if (!ledger_.ready(block)) return;
  Stream& communication = device_.communication_stream();
  communication.wait(device_.compute_stream().record());
  const auto span =
      device_.timeline().scope(SpanKind::communication, communication, {"sum gradients", table_.layer_of(block)});
  communicator_.all_reduce_sum(communication, view(at(block).gradient, block));
}

void ReplicatedParameters::finish_gradients() {
  ledger_.finish_gradients();
  Stream& compute = device_.compute_stream();
  const Event summed = device_.communication_stream().record();
  const auto span = device_.timeline().scope(SpanKind::wait, compute, {"wait for gradients"});
  compute.wait(summed);
}

// Each rank takes the squares of the part that it would own under any kind of sharding, so that the norm, and with it
// clipping, has the same bits whoever holds what.
double ReplicatedParameters::gradient_norm() {
  ledger_.require_finished("gradient_norm");
  Stream& compute = device_.compute_stream();
  Stream& communication = device_.communication_stream();
  const TensorView squares = squares_.view(DType::float64, 1, 1);
  device_.ops().fill_zero(compute, squares);
  for (int block = 0; block < table_.block_count(); ++block) {
    const OwnedState state = owned(block);
    if (state.part.count > 0) device_.ops().sum_of_squares(compute, state.gradient, squares);
  }
  communication.wait(compute.record());
  communicator_.all_reduce_sum(communication, squares);
  compute.wait(communication.record());
  double sum = 0;
  device_.copy_to_host(compute, &sum, squares);
  compute.synchronize();
  return std::sqrt(sum);
}

void ReplicatedParameters::update(const AdamWSettings& settings, double gradient_scale) {
  ledger_.update();
  ++updates_;
  for (int block = 0; block < table_.block_count(); ++block) {
    for (const DecayRun& run : at(block).runs) update_run(block, run, settings, gradient_scale);
  }
}

void ReplicatedParameters::update_run(int block, const DecayRun& run, const AdamWSettings& settings,
                                      double gradient_scale) {
  const auto slice = [&](const Buffer& buffer) {
    return view(buffer, block).slice_cols(run.part.begin, run.part.count);
  };
  const TensorView copy = compute_copy(block);
  device_.ops().adamw(device_.compute_stream(),
                      {.parameter = slice(at(block).master),
                       .gradient = slice(at(block).gradient),
                       .first_moment = slice(at(block).first_moment),
                       .second_moment = slice(at(block).second_moment),
                       .compute_copy = copy ? copy.slice_cols(run.part.begin, run.part.count) : copy,
                       .learning_rate = settings.learning_rate,
                       .beta1 = settings.beta1,
                       .beta2 = settings.beta2,
                       .epsilon = settings.epsilon,
                       .weight_decay = run.weight_decay ? settings.weight_decay : 0.0,
                       .gradient_scale = gradient_scale,
                       .step = updates_});
}

void ReplicatedParameters::refresh_compute_copies() {
  if (!has_compute_copy(options_)) return;
  for (int block = 0; block < table_.block_count(); ++block) {
    device_.ops().cast(device_.compute_stream(), view(at(block).master, block), compute_copy(block));
  }
}

void ReplicatedParameters::restore(std::int64_t updates) {
  ledger_.require_between_steps("restore");
  require(options_.training && updates >= 0, "restoring {} updates", updates);
  updates_ = updates;
  Stream& communication = device_.communication_stream();
  communication.wait(device_.compute_stream().record());
  for (int block = 0; block < table_.block_count(); ++block) {
    const std::vector<std::int64_t> counts = even_counts(table_.block_elements(block), communicator_.size());
    const Part part = owned_part(table_, block, communicator_.size(), communicator_.rank());
    for (const Buffer* buffer : {&at(block).master, &at(block).first_moment, &at(block).second_moment}) {
      const TensorView whole = view(*buffer, block);
      communicator_.all_gather(communication, whole.slice_cols(part.begin, part.count), whole, counts);
    }
  }
  device_.compute_stream().wait(communication.record());
  refresh_compute_copies();
}

void ReplicatedParameters::with_host_blocks(const std::function<void(const BlockOnHost&)>& work,
                                            BlockStaging::Access access) {
  device_.compute_stream().synchronize();
  if (device_.kind() == DeviceKind::cpu) {
    work([this](int block) { return view(at(block).master, block); });
    return;
  }
  std::vector<TensorView> masters;
  for (int block = 0; block < table_.block_count(); ++block) masters.push_back(view(at(block).master, block));
  BlockStaging staging(device_, std::move(masters), access);
  work([&staging](int block) { return staging.block(block); });
  staging.finish();
}

void ReplicatedParameters::set_values(const std::function<void(const BlockOnHost&)>& fill) {
  ledger_.require_between_steps("set_values");
  with_host_blocks(fill, BlockStaging::Access::write);
  refresh_compute_copies();
}

void ReplicatedParameters::get_values(const std::function<void(const BlockOnHost&)>& use) {
  ledger_.require_between_steps("get_values");
  if (communicator_.rank() == 0) with_host_blocks(use, BlockStaging::Access::read);
}

OwnedState ReplicatedParameters::owned(int block) {
  ledger_.require_between_steps("owned");
  const Part part = owned_part(table_, block, communicator_.size(), communicator_.rank());
  const auto slice = [&](const Buffer& buffer) {
    return buffer.data() == nullptr ? TensorView() : view(buffer, block).slice_cols(part.begin, part.count);
  };
  return {part, slice(at(block).master), slice(at(block).gradient), slice(at(block).first_moment),
          slice(at(block).second_moment)};
}

}  // namespace

std::unique_ptr<TrainableParameters> make_replicated_parameters(const ParameterTable& table,
                                                                const TrainableParametersOptions& options,
                                                                Device& device, Communicator& communicator) {
  return std::make_unique<ReplicatedParameters>(table, options, device, communicator);
}

ParameterStateBytes replicated_state_bytes(const ParameterTable& table, const TrainableParametersOptions& options) {
  const std::int64_t elements = table.total_elements();
  const std::int64_t master = elements * size_of(DType::float32);
  ParameterStateBytes bytes;
  bytes.parameters = master + (has_compute_copy(options) ? elements * size_of(options.compute_dtype) : 0);
  if (!options.training) return bytes;
  bytes.gradients = master + size_of(DType::float64);
  bytes.optimizer_state = 2 * master;
  return bytes;
}

}  // namespace skrull

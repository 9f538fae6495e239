#include "skrull/parallel/trainable_parameters.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>
#include <vector>

#include "block_ledger.h"
#include "block_requests.h"
#include "block_staging.h"
#include "gradient_sums.h"
#include "parameter_source.h"
#include "skrull/core/error.h"
#include "skrull/device/ops.h"
#include "skrull/parallel/shard_layout.h"
#include "state_memory.h"

namespace skrull {
namespace {

/// The optimizer over the parts that this rank updates, and the order of a step; where parameters come from and
/// gradients go is up to ParameterSource and GradientSums.
class ShardedParameters final : public TrainableParameters {
 public:
  ShardedParameters(const ParameterTable& table, const TrainableParametersOptions& options, Device& device,
                    Communicator& communicator);
  /// What is under way uses the memory. While an exception unwinds nobody waits: other ranks may be gone.
  ~ShardedParameters() override;
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  const ParameterTable& table() const override { return table_; }

  ConstTensorView acquire(int block) override;
  void release(int block) override;
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
  void open_on_first_use(int block);
  void update_run(int block, const DecayRun& run, const AdamWSettings& settings, double gradient_scale);
  void wait_for_communication() { device_.compute_stream().wait(device_.communication_stream().record()); }
  void use_written_parts();
  void gather(int block, const TensorView& own, const TensorView& whole);
  void with_host_blocks(const std::function<void(const BlockOnHost&)>& work, BlockStaging::Access access);
  void get_gathered_values(const std::function<void(const BlockOnHost&)>& use);
  /// What this rank owns, of a view of its part.
  TensorView own_of(const TensorView& view, int block) const;

  ParameterTable table_;
  TrainableParametersOptions options_;
  Device& device_;
  Communicator& communicator_;
  Sharding sharding_;
  BlockLedger ledger_;
  StateMemory memory_;
  std::unique_ptr<ParameterSource> source_;
  std::unique_ptr<GradientSums> gradients_;
  std::vector<std::vector<DecayRun>> runs_;  // of the part, by block
  std::int64_t updates_ = 0;
  int exceptions_at_start_ = std::uncaught_exceptions();
};

ShardedParameters::ShardedParameters(const ParameterTable& table, const TrainableParametersOptions& options,
                                     Device& device, Communicator& communicator)
    : table_(table),
      options_(options),
      device_(device),
      communicator_(communicator),
      sharding_(make_sharding(options.zero_stage, communicator.size(), communicator.rank())),
      ledger_(table.block_count()),
      memory_(table_, options_, sharding_,
              [&](const char* category, DType dtype, std::int64_t elements) {
                return device.allocate(dtype, 1, elements, category);
              }),
      source_(make_parameter_source(table_, sharding_, memory_, device, communicator)),
      gradients_(make_gradient_sums(table_, sharding_, options.reduction, memory_, device, communicator)) {
  for (int block = 0; block < table_.block_count(); ++block) {
    runs_.push_back(decay_runs(table_, block, memory_.part(block)));
  }
}

ShardedParameters::~ShardedParameters() {
  if (std::uncaught_exceptions() > exceptions_at_start_) return;
  try {
    device_.communication_stream().synchronize();
  } catch (...) {  // whoever uses the stream next meets the error
  }
}

ConstTensorView ShardedParameters::acquire(int block) {
  ledger_.acquire(block);
  return source_->acquire(block);
}

void ShardedParameters::release(int block) {
  ledger_.release(block);
  source_->release(block);
}

void ShardedParameters::begin_step(std::int64_t micro_batches) {
  require(options_.training, "these parameters were set up for evaluation: there is no memory to train them");
  ledger_.begin_step(micro_batches);
  source_->begin_step(micro_batches);
}

void ShardedParameters::open_on_first_use(int block) {
  if (ledger_.open(block)) gradients_->open(block, ledger_.in_first_micro_batch(block));
}

TensorView ShardedParameters::accumulator(int block) {
  open_on_first_use(block);
  return gradients_->accumulator(block);
}

void ShardedParameters::ready(int block) {
  open_on_first_use(block);  // nothing was added: still a sum
  gradients_->ready(block, ledger_.ready(block));
}

void ShardedParameters::finish_gradients() {
  ledger_.finish_gradients();
  const Event summed = device_.communication_stream().record();
  const auto span = device_.timeline().scope(SpanKind::wait, device_.compute_stream(), {"wait for gradients"});
  device_.compute_stream().wait(summed);
}

// Each rank takes the squares of what it owns under any kind of sharding, so that the norm, and with it clipping, has
// the same bits whoever holds what.
double ShardedParameters::gradient_norm() {
  ledger_.require_finished("gradient_norm");
  Stream& compute = device_.compute_stream();
  Stream& communication = device_.communication_stream();
  const TensorView squares = memory_.squares();
  device_.ops().fill_zero(compute, squares);
  for (int block = 0; block < table_.block_count(); ++block) {
    const OwnedState state = owned(block);
    if (state.part.count > 0) device_.ops().sum_of_squares(compute, state.gradient, squares);
  }
  communication.wait(compute.record());
  communicator_.all_reduce_sum(communication, squares);
  wait_for_communication();
  double sum = 0;
  device_.copy_to_host(compute, &sum, squares);
  compute.synchronize();
  return std::sqrt(sum);
}

void ShardedParameters::update(const AdamWSettings& settings, double gradient_scale) {
  ledger_.update();
  ++updates_;
  wait_for_communication();  // which may still read the values of before
  for (int block = 0; block < table_.block_count(); ++block) {
    for (const DecayRun& run : runs_[static_cast<std::size_t>(block)]) {
      update_run(block, run, settings, gradient_scale);
    }
    source_->updated(block);
  }
  source_->updated_all();
}

void ShardedParameters::update_run(int block, const DecayRun& run, const AdamWSettings& settings,
                                   double gradient_scale) {
  const std::int64_t begin = run.part.begin - memory_.part(block).begin;
  const auto slice = [&](const auto& view) { return view.slice_cols(begin, run.part.count); };
  device_.ops().adamw(device_.compute_stream(),
                      {.parameter = slice(memory_.master(block)),
                       .gradient = slice(gradients_->sum(block)),
                       .first_moment = slice(memory_.first_moment(block)),
                       .second_moment = slice(memory_.second_moment(block)),
                       .compute_copy = memory_.computes_with_master() ? TensorView() : slice(memory_.compute(block)),
                       .learning_rate = settings.learning_rate,
                       .beta1 = settings.beta1,
                       .beta2 = settings.beta2,
                       .epsilon = settings.epsilon,
                       .weight_decay = run.weight_decay ? settings.weight_decay : 0.0,
                       .gradient_scale = gradient_scale,
                       .step = updates_});
}

/// The master values of all parts are new.
void ShardedParameters::use_written_parts() {
  for (int block = 0; block < table_.block_count(); ++block) {
    if (memory_.computes_with_master() || memory_.part(block).count == 0) continue;
    device_.ops().cast(device_.compute_stream(), memory_.master(block), memory_.compute(block));
  }
  source_->replaced_all();
}

/// The whole block from what the ranks own of it. The compute stream waits for it.
void ShardedParameters::gather(int block, const TensorView& own, const TensorView& whole) {
  Stream& communication = device_.communication_stream();
  communication.wait(device_.compute_stream().record());
  communicator_.all_gather(communication, own, whole, even_counts(table_.block_elements(block), sharding_.ranks));
  wait_for_communication();
}

void ShardedParameters::restore(std::int64_t updates) {
  ledger_.require_between_steps("restore");
  require(options_.training && updates >= 0, "restoring {} updates", updates);
  updates_ = updates;
  wait_for_communication();
  if (!sharding_.of_optimizer()) {
    for (int block = 0; block < table_.block_count(); ++block) {
      for (const TensorView& whole :
           {memory_.master(block), memory_.first_moment(block), memory_.second_moment(block)}) {
        gather(block, own_of(whole, block), whole);
      }
    }
  }
  use_written_parts();
}

void ShardedParameters::with_host_blocks(const std::function<void(const BlockOnHost&)>& work,
                                         BlockStaging::Access access) {
  wait_for_communication();
  device_.compute_stream().synchronize();
  if (device_.kind() == DeviceKind::cpu && !sharding_.of_optimizer()) {
    work([this](int block) { return memory_.master(block); });
    return;
  }
  std::vector<BlockStaging::Held> held;
  for (int block = 0; block < table_.block_count(); ++block) {
    held.push_back({memory_.master(block), memory_.part(block), table_.block_elements(block)});
  }
  // Where the host can, it uses the memory of gradients: none is needed that was not planned.
  BlockStaging::HostMemory host_memory;
  if (device_.kind() == DeviceKind::cpu && options_.training) {
    host_memory = [this](int block) { return gradients_->spare(block); };
  }
  BlockStaging staging(device_, std::move(held), access, std::move(host_memory));
  work([&staging](int block) { return staging.block(block); });
  staging.finish();
}

void ShardedParameters::set_values(const std::function<void(const BlockOnHost&)>& fill) {
  ledger_.require_between_steps("set_values");
  with_host_blocks(fill, BlockStaging::Access::write);
  use_written_parts();
}

void ShardedParameters::get_values(const std::function<void(const BlockOnHost&)>& use) {
  ledger_.require_between_steps("get_values");
  if (sharding_.of_optimizer()) {
    get_gathered_values(use);
  } else if (sharding_.rank == 0) {
    with_host_blocks(use, BlockStaging::Access::read);
  }
}

void ShardedParameters::get_gathered_values(const std::function<void(const BlockOnHost&)>& use) {
  std::int64_t largest = 0;
  for (int block = 0; block < table_.block_count(); ++block) {
    largest = std::max(largest, table_.block_elements(block));
  }
  // In training the memory of gradients is free.
  const Buffer own_memory = device_.allocate(DType::float32, 1, options_.training ? 0 : largest, "parameters");
  BlockRequests requests(device_, communicator_, [&](int block) {
    const TensorView whole =
        options_.training ? gradients_->spare(block) : own_memory.view(DType::float32, 1, table_.block_elements(block));
    gather(block, memory_.master(block), whole);
    return whole;
  });
  if (sharding_.rank != 0) return requests.serve();
  std::vector<char> host(device_.kind() == DeviceKind::cpu ? 0 : static_cast<std::size_t>(largest) * sizeof(float));
  const auto block_on_host = [&](int block) {
    TensorView whole = requests.request(block);
    if (!host.empty()) {
      device_.copy_to_host(device_.compute_stream(), host.data(), whole);
      whole = {host.data(), DType::float32, 1, whole.cols()};
    }
    device_.compute_stream().synchronize();
    return whole;
  };
  try {
    use(block_on_host);
  } catch (...) {
    requests.finish();
    throw;
  }
  requests.finish();
}

TensorView ShardedParameters::own_of(const TensorView& view, int block) const {
  const Part own = owned_part(table_, block, sharding_.ranks, sharding_.rank);
  return view ? view.slice_cols(own.begin - memory_.part(block).begin, own.count) : view;
}

OwnedState ShardedParameters::owned(int block) {
  ledger_.require_between_steps("owned");
  wait_for_communication();  // which may still read what the caller may write
  const Part own = owned_part(table_, block, sharding_.ranks, sharding_.rank);
  const TensorView gradient = memory_.gradient(block);
  return {own, own_of(memory_.master(block), block),
          sharding_.of_gradients() || !gradient ? gradient : gradient.slice_cols(own.begin, own.count),
          own_of(memory_.first_moment(block), block), own_of(memory_.second_moment(block), block)};
}

}  // namespace

std::unique_ptr<TrainableParameters> make_trainable_parameters(const ParameterTable& table,
                                                               const TrainableParametersOptions& options,
                                                               Device& device, Communicator& communicator) {
  return std::make_unique<ShardedParameters>(table, options, device, communicator);
}

std::map<std::string, std::int64_t> training_state_bytes(const ParameterTable& table,
                                                         const TrainableParametersOptions& options, int ranks,
                                                         int rank) {
  std::map<std::string, std::int64_t> bytes;
  const StateMemory counted(table, options, make_sharding(options.zero_stage, ranks, rank),
                            [&](const char* category, DType dtype, std::int64_t elements) {
                              bytes[category] += elements * size_of(dtype);
                              return Buffer();
                            });
  return bytes;
}

}  // namespace skrull

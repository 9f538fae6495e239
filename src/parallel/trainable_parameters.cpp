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
#include "optimizer.h"
#include "parameter_source.h"
#include "skrull/core/error.h"
#include "skrull/device/ops.h"
#include "skrull/parallel/shard_layout.h"
#include "state_memory.h"

namespace skrull {
namespace {

/// The order of a step; where parameters come from, gradients go, and updates run is up to ParameterSource,
/// GradientSums and Optimizer.
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
  void wait_for_communication() { device_.compute_stream().wait(device_.communication_stream().record()); }
  void use_written_parts();
  void gather(int block, const TensorView& own, const TensorView& whole);
  void gather_on_host(int block, const TensorView& whole);
  void with_host_blocks(const std::function<void(const BlockOnHost&)>& work, BlockStaging::Access access);
  void get_gathered_values(const std::function<void(const BlockOnHost&)>& use);
  /// What this rank owns, of a view of its part, or of the whole block.
  TensorView own_of(const TensorView& view, int block) const;
  TensorView own_part_of(const TensorView& whole, int block) const;

  ParameterTable table_;
  TrainableParametersOptions options_;
  Device& device_;
  Communicator& communicator_;
  Sharding sharding_;
  BlockLedger ledger_;
  StateMemory memory_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<ParameterSource> source_;
  std::unique_ptr<GradientSums> gradients_;
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
              [&](MemoryPlace place, const char* category, DType dtype, std::int64_t elements) {
                return place == MemoryPlace::host ? device.allocate_on_host(dtype, 1, elements, category)
                                                  : device.allocate(dtype, 1, elements, category);
              }),
      optimizer_(make_optimizer(table_, memory_, device)),
      source_(make_parameter_source(table_, sharding_, memory_, *optimizer_, device, communicator)),
      gradients_(make_gradient_sums(table_, sharding_, options.reduction, memory_, device, communicator)) {}

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
  const bool last = ledger_.ready(block);
  gradients_->ready(block, last);
  if (last) optimizer_->gradient_summed(block, gradients_->sum(block));
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
  wait_for_communication();  // gathers ahead may still read the values of before; what they bring is dropped
  optimizer_->begin_update(settings, gradient_scale, updates_);
  for (int block = 0; block < table_.block_count(); ++block) {
    optimizer_->update(block, gradients_->sum(block));
    source_->updated(block);
  }
  source_->updated_all();
}

/// The master values of all parts are new.
void ShardedParameters::use_written_parts() {
  optimizer_->masters_written();
  source_->replaced_all();
}

/// The whole block from what the ranks own of it. The compute stream waits for it.
void ShardedParameters::gather(int block, const TensorView& own, const TensorView& whole) {
  Stream& communication = device_.communication_stream();
  communication.wait(device_.compute_stream().record());
  communicator_.all_gather(communication, own, whole, even_counts(table_.block_elements(block), sharding_.ranks));
  wait_for_communication();
}

/// The same for a block in host memory, by way of the device.
void ShardedParameters::gather_on_host(int block, const TensorView& whole) {
  Stream& compute = device_.compute_stream();
  const TensorView on_device = gradients_->spare(block);
  const TensorView own = own_part_of(on_device, block);
  device_.copy_to_device(compute, own, own_of(whole, block).data());
  gather(block, own, on_device);
  device_.copy_to_host(compute, whole.data(), on_device);
  compute.synchronize();
}

void ShardedParameters::restore(std::int64_t updates) {
  ledger_.require_between_steps("restore");
  require(options_.training && updates >= 0, "restoring {} updates", updates);
  updates_ = updates;
  if (memory_.on_host()) device_.compute_stream().synchronize();  // it wrote what the host reads now
  if (!sharding_.of_optimizer()) {
    for (int block = 0; block < table_.block_count(); ++block) {
      for (const TensorView& whole :
           {memory_.master(block), memory_.first_moment(block), memory_.second_moment(block)}) {
        if (memory_.on_host()) {
          gather_on_host(block, whole);
        } else {
          gather(block, own_of(whole, block), whole);
        }
      }
    }
  }
  use_written_parts();
}

void ShardedParameters::with_host_blocks(const std::function<void(const BlockOnHost&)>& work,
                                         BlockStaging::Access access) {
  wait_for_communication();  // as in update()
  device_.compute_stream().synchronize();
  optimizer_->synchronize();
  if ((device_.kind() == DeviceKind::cpu || memory_.on_host()) && !sharding_.of_optimizer()) {
    work([this](int block) { return memory_.master(block); });
    return;
  }
  std::vector<BlockStaging::Held> held;
  held.reserve(static_cast<std::size_t>(table_.block_count()));
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
  optimizer_->synchronize();
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
    if (memory_.on_host()) {  // communicators take the device's memory alone
      const TensorView own = own_part_of(whole, block);
      device_.copy_to_device(device_.compute_stream(), own, memory_.master(block).data());
      gather(block, own, whole);
    } else {
      gather(block, memory_.master(block), whole);
    }
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

TensorView ShardedParameters::own_part_of(const TensorView& whole, int block) const {
  const Part own = owned_part(table_, block, sharding_.ranks, sharding_.rank);
  return whole.slice_cols(own.begin, own.count);
}

OwnedState ShardedParameters::owned(int block) {
  ledger_.require_between_steps("owned");
  wait_for_communication();  // which may still read what the caller may write
  optimizer_->synchronize();
  const Part own = owned_part(table_, block, sharding_.ranks, sharding_.rank);
  const TensorView gradient = memory_.gradient(block);
  return {own, own_of(memory_.master(block), block),
          sharding_.of_gradients() || !gradient ? gradient : own_part_of(gradient, block),
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
                            [&](MemoryPlace /*place*/, const char* category, DType dtype, std::int64_t elements) {
                              bytes[category] += elements * size_of(dtype);
                              return Buffer();
                            });
  return bytes;
}

}  // namespace skrull

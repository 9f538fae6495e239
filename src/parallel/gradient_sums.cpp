#include "gradient_sums.h"

#include "skrull/core/error.h"
#include "skrull/device/ops.h"

namespace skrull {
namespace {

/// What both kinds know of blocks, parts and streams.
class SummedByRank : public GradientSums {
 public:
  SummedByRank(const ParameterTable& table, const Sharding& sharding, const StateMemory& memory, Device& device,
               Communicator& communicator)
      : table_(table),
        sharding_(sharding),
        memory_(memory),
        device_(device),
        communicator_(communicator),
        summed_(static_cast<std::size_t>(table.block_count())) {}

 protected:
  Part owned(int block) const { return owned_part(table_, block, sharding_.ranks, sharding_.rank); }
  TensorView own_of(const TensorView& whole, int block) const {
    return whole.slice_cols(owned(block).begin, owned(block).count);
  }

  void zero(const TensorView& view) { device_.ops().fill_zero(device_.compute_stream(), view); }
  void zero_outside_own(const TensorView& whole, int block) {
    const Part part = owned(block);
    if (part.begin > 0) zero(whole.slice_cols(0, part.begin));
    if (part.end() < whole.cols()) zero(whole.slice_cols(part.end(), whole.cols() - part.end()));
  }

  void wait_for(const Event& event, int block) {
    const auto span = device_.timeline().scope(SpanKind::wait, device_.compute_stream(),
                                               {"wait for gradients", table_.layer_of(block)});
    device_.compute_stream().wait(event);
  }
  void wait_until_summed(int block) { wait_for(summed_.at(static_cast<std::size_t>(block)), block); }

  /// Queues the sum over ranks of what the compute stream has added to `whole`.
  void reduce_scatter(int block, const TensorView& whole, const TensorView& own) {
    Stream& communication = device_.communication_stream();
    communication.wait(device_.compute_stream().record());
    const auto span =
        device_.timeline().scope(SpanKind::communication, communication, {"sum gradients", table_.layer_of(block)});
    communicator_.reduce_scatter_sum(communication, whole, own,
                                     even_counts(table_.block_elements(block), sharding_.ranks));
    summed_.at(static_cast<std::size_t>(block)) = communication.record();
  }

  const ParameterTable& table_;
  Sharding sharding_;
  const StateMemory& memory_;
  Device& device_;
  Communicator& communicator_;
  std::vector<Event> summed_;  // by block
};

/// A buffer for every whole block (stages 0 and 1).
class WholeGradients final : public SummedByRank {
 public:
  WholeGradients(const ParameterTable& table, const Sharding& sharding, GradientReduction reduction,
                 const StateMemory& memory, Device& device, Communicator& communicator)
      : SummedByRank(table, sharding, memory, device, communicator), reduction_(reduction) {}

  void open(int block, bool first) override {
    if (first) {
      zero(memory_.gradient(block));
    } else if (reduction_ == GradientReduction::every_micro_batch) {
      wait_until_summed(block);
      zero_outside_own(memory_.gradient(block), block);
    }
  }
  TensorView accumulator(int block) override { return memory_.gradient(block); }

  void ready(int block, bool last) override {
    if (!last && reduction_ == GradientReduction::once) return;
    const TensorView whole = memory_.gradient(block);
    if (sharding_.of_optimizer() || !last) return reduce_scatter(block, whole, own_of(whole, block));
    Stream& communication = device_.communication_stream();
    communication.wait(device_.compute_stream().record());
    const auto span =
        device_.timeline().scope(SpanKind::communication, communication, {"sum gradients", table_.layer_of(block)});
    communicator_.all_reduce_sum(communication, whole);  // the bits that a reduce-scatter gives
    summed_.at(static_cast<std::size_t>(block)) = communication.record();
  }

  ConstTensorView sum(int block) const override {
    const Part part = memory_.part(block);
    return memory_.gradient(block).slice_cols(part.begin, part.count);
  }
  TensorView spare(int block) override { return memory_.gradient(block); }

 private:
  GradientReduction reduction_;
};

/// Whole blocks in slots for the length of a micro-batch's backward, sums of the owned parts (stages 2 and 3).
class StagedGradients final : public SummedByRank {
 public:
  StagedGradients(const ParameterTable& table, const Sharding& sharding, const StateMemory& memory, Device& device,
                  Communicator& communicator)
      : SummedByRank(table, sharding, memory, device, communicator),
        occupancy_(BlockSlots(table)),
        emptied_(BlockSlots(table).elements().size()) {}

  void open(int block, bool first) override {
    const int slot = occupancy_.take(block);
    occupancy_.begin_use(slot);
    wait_for(emptied_.at(static_cast<std::size_t>(slot)), block);
    const TensorView whole = memory_.staged(slot, block);
    if (first) return zero(whole);
    wait_until_summed(block);
    zero_outside_own(whole, block);
    device_.ops().cast(device_.compute_stream(), memory_.gradient(block), own_of(whole, block));
  }

  TensorView accumulator(int block) override { return memory_.staged(slot_of(block), block); }

  void ready(int block, bool /*last*/) override {
    const int slot = slot_of(block);
    reduce_scatter(block, memory_.staged(slot, block), memory_.gradient(block));
    emptied_.at(static_cast<std::size_t>(slot)) = summed_.at(static_cast<std::size_t>(block));
    occupancy_.end_use(slot);
  }

  ConstTensorView sum(int block) const override { return memory_.gradient(block); }
  TensorView spare(int block) override { return memory_.staged(BlockSlots(table_).slots_of(block).front(), block); }

 private:
  int slot_of(int block) const {
    const int slot = occupancy_.find(block);
    require(slot >= 0, "the gradient of block {} is not open", block);
    return slot;
  }

  SlotOccupancy occupancy_;
  std::vector<Event> emptied_;  // by slot
};

}  // namespace

std::unique_ptr<GradientSums> make_gradient_sums(const ParameterTable& table, const Sharding& sharding,
                                                 GradientReduction reduction, const StateMemory& memory, Device& device,
                                                 Communicator& communicator) {
  if (!sharding.of_gradients()) {
    return std::make_unique<WholeGradients>(table, sharding, reduction, memory, device, communicator);
  }
  require(reduction == GradientReduction::every_micro_batch,
          "ZeRO stage {} keeps no gradients that could be summed once a step", sharding.stage);
  return std::make_unique<StagedGradients>(table, sharding, memory, device, communicator);
}

}  // namespace skrull

#include "parameter_source.h"

#include <vector>

#include "block_walk.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

void wait_for_parameters(Device& device, const Event& arrival, std::int64_t layer) {
  const auto span = device.timeline().scope(SpanKind::wait, device.compute_stream(), {"wait for parameters", layer});
  device.compute_stream().wait(arrival);
}

/// Whole on every rank. Where ranks update their own parts only, these are gathered behind the rest of the update; or,
/// where an update takes long, one by one behind the computation with the block before.
class ResidentParameters final : public ParameterSource {
 public:
  ResidentParameters(const ParameterTable& table, const Sharding& sharding, const StateMemory& memory,
                     Optimizer& optimizer, Device& device, Communicator& communicator)
      : table_(table),
        in_parts_(sharding.of_optimizer()),
        memory_(memory),
        optimizer_(optimizer),
        device_(device),
        communicator_(communicator),
        blocks_(static_cast<std::size_t>(table.block_count())) {}

  ConstTensorView acquire(int block) override {
    bring(block);
    if (optimizer_.writes_late() && block + 1 < table_.block_count()) bring(block + 1);
    wait_for_parameters(device_, at(block).arrival, table_.layer_of(block));
    return memory_.resident(block);
  }
  void release(int /*block*/) override {}

  void begin_step(std::int64_t /*micro_batches*/) override {}
  void updated(int block) override {
    at(block).stale = true;
    if (!optimizer_.writes_late()) bring(block);
  }
  void updated_all() override {}
  void replaced_all() override {
    for (Block& block : blocks_) block.stale = true;
  }

 private:
  struct Block {
    bool stale = false;
    Event arrival;
  };
  Block& at(int block) { return blocks_.at(static_cast<std::size_t>(block)); }

  void bring(int block) {
    if (!at(block).stale) return;
    const Event written = optimizer_.written(block);
    at(block) = {false, in_parts_ ? spread(block, written) : written};
  }

  /// The whole block is there after the event.
  Event spread(int block, const Event& written) {
    Stream& communication = device_.communication_stream();
    communication.wait(written);
    const auto span = device_.timeline().scope(SpanKind::communication, communication,
                                               {"gather updated parameters", table_.layer_of(block)});
    communicator_.all_gather(communication, memory_.compute(block), memory_.resident(block),
                             even_counts(table_.block_elements(block), communicator_.size()));
    return communication.record();
  }

  const ParameterTable& table_;
  bool in_parts_;
  const StateMemory& memory_;
  Optimizer& optimizer_;
  Device& device_;
  Communicator& communicator_;
  std::vector<Block> blocks_;
};

/// Every rank keeps its parts; a block is gathered into a slot before it is used, as a rule while the one before it is
/// computed with. What a slot still holds is not gathered again.
class GatheredParameters final : public ParameterSource {
 public:
  GatheredParameters(const ParameterTable& table, const StateMemory& memory, Optimizer& optimizer, Device& device,
                     Communicator& communicator)
      : table_(table),
        memory_(memory),
        optimizer_(optimizer),
        device_(device),
        communicator_(communicator),
        walk_(table),
        occupancy_(BlockSlots(table)),
        slots_(BlockSlots(table).elements().size()) {}

  ConstTensorView acquire(int block) override {
    if (occupancy_.find(block) < 0) gather(block);
    const int slot = occupancy_.find(block);
    occupancy_.begin_use(slot);
    wait_for_parameters(device_, at(slot).arrival, table_.layer_of(block));
    walk_.advance(block);
    gather_ahead();
    return memory_.gathered(slot, block);
  }

  void release(int block) override {
    const int slot = occupancy_.find(block);
    require(slot >= 0, "block {} is released and not there", block);
    occupancy_.end_use(slot);
    at(slot).last_read = device_.compute_stream().record();
  }

  void begin_step(std::int64_t micro_batches) override { walk_.begin_step(micro_batches); }
  void updated(int /*block*/) override {}
  void updated_all() override {
    replaced_all();
    walk_.rewind();
    gather_ahead();
  }
  void replaced_all() override { occupancy_.clear(); }

 private:
  struct Slot {
    Event arrival;
    Event last_read;
  };
  Slot& at(int slot) { return slots_.at(static_cast<std::size_t>(slot)); }

  void gather_ahead() {
    for (const int block : walk_.upcoming()) {
      if (occupancy_.find(block) >= 0) continue;
      if (!occupancy_.can_take(block)) return;
      gather(block);
    }
  }

  void gather(int block) {
    const int slot = occupancy_.take(block);
    Stream& communication = device_.communication_stream();
    communication.wait(optimizer_.written(block));
    communication.wait(at(slot).last_read);
    const auto span =
        device_.timeline().scope(SpanKind::communication, communication, {"gather parameters", table_.layer_of(block)});
    communicator_.all_gather(communication, memory_.compute(block), memory_.gathered(slot, block),
                             even_counts(table_.block_elements(block), communicator_.size()));
    at(slot).arrival = communication.record();
  }

  const ParameterTable& table_;
  const StateMemory& memory_;
  Optimizer& optimizer_;
  Device& device_;
  Communicator& communicator_;
  BlockWalk walk_;
  SlotOccupancy occupancy_;
  std::vector<Slot> slots_;
};

}  // namespace

std::unique_ptr<ParameterSource> make_parameter_source(const ParameterTable& table, const Sharding& sharding,
                                                       const StateMemory& memory, Optimizer& optimizer, Device& device,
                                                       Communicator& communicator) {
  if (sharding.of_parameters()) {
    return std::make_unique<GatheredParameters>(table, memory, optimizer, device, communicator);
  }
  return std::make_unique<ResidentParameters>(table, sharding, memory, optimizer, device, communicator);
}

}  // namespace skrull

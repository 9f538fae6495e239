#include "block_slots.h"

#include <algorithm>
#include <utility>

#include "skrull/core/error.h"

namespace skrull {

BlockSlots::BlockSlots(const ParameterTable& table) {
  constexpr int table_slot = 0;
  constexpr int norm_slot = 1;
  const std::vector<int> layer_slots = {2, 3};
  elements_.resize(4);
  for (int block = 0; block < table.block_count(); ++block) {
    if (block == table.final_norm_block()) {
      slots_.push_back({norm_slot});
    } else if (block == table.embedding_block() || block == table.head_block()) {
      slots_.push_back({table_slot});
    } else {
      slots_.push_back(layer_slots);
    }
    for (const int slot : slots_.back()) {
      auto& elements = elements_[static_cast<std::size_t>(slot)];
      elements = std::max(elements, table.block_elements(block));
    }
  }
}

SlotOccupancy::SlotOccupancy(BlockSlots slots) : slots_(std::move(slots)), occupied_(slots_.elements().size()) {}

int SlotOccupancy::find(int block) const {
  for (const int slot : slots_.slots_of(block)) {
    if (occupied_[static_cast<std::size_t>(slot)].block == block) return slot;
  }
  return -1;
}

int SlotOccupancy::choose(int block) const {
  int chosen = -1;
  for (const int slot : slots_.slots_of(block)) {
    const Slot& candidate = occupied_[static_cast<std::size_t>(slot)];
    if (candidate.users > 0) continue;
    if (chosen < 0 || candidate.last_use < occupied_[static_cast<std::size_t>(chosen)].last_use) chosen = slot;
  }
  return chosen;
}

int SlotOccupancy::take(int block) {
  const int slot = choose(block);
  require(slot >= 0, "block {}: all {} buffers for blocks of its kind are in use", block,
          slots_.slots_of(block).size());
  for (const int other : slots_.slots_of(block)) {
    if (at(other).block == block) at(other).block = -1;
  }
  at(slot).block = block;
  at(slot).last_use = ++uses_;
  return slot;
}

void SlotOccupancy::begin_use(int slot) {
  ++at(slot).users;
  at(slot).last_use = ++uses_;
}

void SlotOccupancy::end_use(int slot) {
  require(at(slot).users > 0, "buffer {} is not in use", slot);
  --at(slot).users;
}

void SlotOccupancy::clear() {
  for (Slot& slot : occupied_) {
    require(slot.users == 0, "block {} is in use", slot.block);
    slot = {};
  }
}

}  // namespace skrull

#pragma once
// Buffers that blocks take turns in: a few hold whole blocks while the rest of the model is divided among the ranks.

#include <cstdint>
#include <vector>

#include "skrull/model/parameter_table.h"

namespace skrull {

/// Which slots a block may lie in. Pure. Two for the layers, so that one is filled or emptied while the other is
/// computed with; one for embedding and head, which are far apart in a pass (a tied embedding keeps it); one for the
/// final norm, so that it drives no layer out.
class BlockSlots {
 public:
  explicit BlockSlots(const ParameterTable& table);

  /// Elements of every slot: of the largest block it takes.
  const std::vector<std::int64_t>& elements() const { return elements_; }
  const std::vector<int>& slots_of(int block) const { return slots_.at(static_cast<std::size_t>(block)); }

 private:
  std::vector<std::int64_t> elements_;
  std::vector<std::vector<int>> slots_;  // by block
};

/// Who lies in which slot. Decides by the order of calls alone, so that all ranks decide alike.
class SlotOccupancy {
 public:
  explicit SlotOccupancy(BlockSlots slots);

  /// The slot that holds the block, or -1.
  int find(int block) const;
  /// Whether take() would find a slot for the block.
  bool can_take(int block) const { return choose(block) >= 0; }
  /// Gives the block a slot that is not in use: the one whose last use is longest ago. Throws RunFailure when all are.
  int take(int block);
  /// While a slot is in use nobody else gets it. Calls pair up.
  void begin_use(int slot);
  void end_use(int slot);
  /// No slot holds anything. None may be in use.
  void clear();

 private:
  struct Slot {
    int block = -1;
    int users = 0;
    std::int64_t last_use = 0;
  };
  int choose(int block) const;
  Slot& at(int slot) { return occupied_.at(static_cast<std::size_t>(slot)); }

  BlockSlots slots_;
  std::vector<Slot> occupied_;
  std::int64_t uses_ = 0;
};

}  // namespace skrull

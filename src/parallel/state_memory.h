#pragma once
// Every buffer of the training state, listed once: what ParameterState, its gradients and the blocks in use lie in.

#include <cstdint>
#include <functional>
#include <vector>

#include "block_slots.h"
#include "skrull/core/tensor.h"
#include "skrull/device/device.h"
#include "skrull/model/parameter_table.h"
#include "skrull/parallel/shard_layout.h"
#include "skrull/parallel/trainable_parameters.h"

namespace skrull {

/// Gives a buffer of `elements` x `dtype` under a category of the memory table.
using AllocateBuffer =
    std::function<Buffer(MemoryPlace place, const char* category, DType dtype, std::int64_t elements)>;

/// All views are 1 x n. "The part" of a block is what this rank updates: the whole block under stage 0, else what it
/// owns.
class StateMemory {
 public:
  /// Calls `allocate` once for every buffer. With one that only counts nothing else may be asked of the result.
  StateMemory(const ParameterTable& table, const TrainableParametersOptions& options, const Sharding& sharding,
              const AllocateBuffer& allocate);

  Part part(int block) const { return at(block).part; }
  /// Whether master weights and moments lie in host memory.
  bool on_host() const { return options_.optimizer_on_host; }
  TensorView master(int block) const;  ///< fp32, of the part
  /// On the device, in the compute dtype, of the part; the master itself where computes_with_master().
  TensorView compute(int block) const;
  /// The whole block in the compute dtype; the part lies in it at its place. Not under stage 3.
  TensorView resident(int block) const;
  bool computes_with_master() const { return options_.compute_dtype == DType::float32 && !on_host(); }

  /// fp32: the whole block, or from stage 2 on what this rank owns.
  TensorView gradient(int block) const;
  TensorView first_moment(int block) const { return of_part(at(block).first_moment, block); }
  TensorView second_moment(int block) const { return of_part(at(block).second_moment, block); }
  /// Where master and moments lie on the host: room for the gradients of the part (fp32), and what is to be computed
  /// with, in fp32 the master itself.
  TensorView host_gradient(int block) const { return of_part(at(block).host_gradient, block); }
  TensorView host_compute(int block) const;
  TensorView squares() const { return squares_.view(DType::float64, 1, 1); }

  /// A whole block in a slot of gathered parameters (stage 3), or of gradients under way (from stage 2 on).
  TensorView gathered(int slot, int block) const;
  TensorView staged(int slot, int block) const;

 private:
  struct Block {
    Part part;
    Part owned;
    std::int64_t elements = 0;
    Buffer resident;
    Buffer master;   // nothing where the resident block is the master
    Buffer compute;  // stage 3, where the master is not computed with
    Buffer gradient;
    Buffer first_moment;
    Buffer second_moment;
    Buffer host_gradient;
    Buffer host_compute;
  };
  const Block& at(int block) const { return blocks_.at(static_cast<std::size_t>(block)); }
  TensorView of_part(const Buffer& buffer, int block) const;

  TrainableParametersOptions options_;
  Sharding sharding_;
  std::vector<Block> blocks_;
  std::vector<Buffer> gathered_;
  std::vector<Buffer> staged_;
  Buffer squares_;
};

}  // namespace skrull

#include "state_memory.h"

#include <utility>

#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr const char* parameters_category = "parameters";
constexpr const char* gathered_category = "gathered parameters";
constexpr const char* gradients_category = "gradients";
constexpr const char* staged_category = "gradient buffers";
constexpr const char* optimizer_category = "optimizer state";
constexpr const char* host_category = "optimizer on host";

}  // namespace

StateMemory::StateMemory(const ParameterTable& table, const TrainableParametersOptions& options,
                         const Sharding& sharding, const AllocateBuffer& allocate)
    : options_(options), sharding_(sharding) {
  require(options.compute_dtype == DType::float32 || options.compute_dtype == DType::bfloat16,
          "parameters in {}, expected float32 or bfloat16", name_of(options.compute_dtype));
  const bool resident_is_master = computes_with_master() && !sharding.of_parameters();
  for (int index = 0; index < table.block_count(); ++index) {
    Block block;
    block.elements = table.block_elements(index);
    block.owned = owned_part(table, index, sharding.ranks, sharding.rank);
    block.part = sharding.of_optimizer() ? block.owned : Part{0, block.elements};
    const auto on_device = [&](const char* category, DType dtype, std::int64_t elements) {
      return allocate(MemoryPlace::device, category, dtype, elements);
    };
    /// Of the optimizer's part.
    const auto state = [&](const char* category, DType dtype) {
      return on_host() ? allocate(MemoryPlace::host, host_category, dtype, block.part.count)
                       : on_device(category, dtype, block.part.count);
    };
    if (!sharding.of_parameters()) {
      block.resident = on_device(parameters_category, options.compute_dtype, block.elements);
    } else if (!computes_with_master()) {
      block.compute = on_device(parameters_category, options.compute_dtype, block.part.count);
    }
    if (!resident_is_master) block.master = state(parameters_category, DType::float32);
    if (options.training) {
      block.gradient =
          on_device(gradients_category, DType::float32, sharding.of_gradients() ? block.owned.count : block.elements);
      block.first_moment = state(optimizer_category, DType::float32);
      block.second_moment = state(optimizer_category, DType::float32);
    }
    if (on_host() && options.training) block.host_gradient = state(host_category, DType::float32);
    if (on_host() && options.compute_dtype != DType::float32) {
      block.host_compute = state(host_category, options.compute_dtype);
    }
    blocks_.push_back(std::move(block));
  }
  const BlockSlots slots(table);
  for (const std::int64_t elements : slots.elements()) {
    if (sharding.of_parameters()) {
      gathered_.push_back(allocate(MemoryPlace::device, gathered_category, options.compute_dtype, elements));
    }
    if (options.training && sharding.of_gradients()) {
      staged_.push_back(allocate(MemoryPlace::device, staged_category, DType::float32, elements));
    }
  }
  if (options.training) squares_ = allocate(MemoryPlace::device, gradients_category, DType::float64, 1);
}

TensorView StateMemory::of_part(const Buffer& buffer, int block) const {
  if (!options_.training) return {};
  return buffer.view(DType::float32, 1, part(block).count);
}

TensorView StateMemory::resident(int block) const {
  return at(block).resident.view(options_.compute_dtype, 1, at(block).elements);
}

TensorView StateMemory::compute(int block) const {
  const Part part = at(block).part;
  if (!sharding_.of_parameters()) return resident(block).slice_cols(part.begin, part.count);
  return computes_with_master() ? master(block) : at(block).compute.view(options_.compute_dtype, 1, part.count);
}

TensorView StateMemory::host_compute(int block) const {
  if (options_.compute_dtype == DType::float32) return master(block);
  return at(block).host_compute.view(options_.compute_dtype, 1, part(block).count);
}

TensorView StateMemory::master(int block) const {
  if (computes_with_master() && !sharding_.of_parameters()) return compute(block);
  return at(block).master.view(DType::float32, 1, at(block).part.count);
}

TensorView StateMemory::gradient(int block) const {
  if (!options_.training) return {};
  const std::int64_t elements = sharding_.of_gradients() ? at(block).owned.count : at(block).elements;
  return at(block).gradient.view(DType::float32, 1, elements);
}

TensorView StateMemory::gathered(int slot, int block) const {
  return gathered_.at(static_cast<std::size_t>(slot)).view(options_.compute_dtype, 1, at(block).elements);
}

TensorView StateMemory::staged(int slot, int block) const {
  return staged_.at(static_cast<std::size_t>(slot)).view(DType::float32, 1, at(block).elements);
}

}  // namespace skrull

#pragma once
// A model on the CPU with the simplest implementation of each of its interfaces.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "host_parameters.h"
#include "skrull/data/micro_batch.h"
#include "skrull/device/device.h"
#include "skrull/model/seams.h"
#include "skrull/model/transformer.h"

namespace skrull::test {

/// Every block on the device at all times; checks that blocks are held one at a time and released.
class ResidentParameters : public ParameterProvider {
 public:
  ResidentParameters(Device& device, const ParameterTable& table, DType dtype, HostParameters& masters);
  ConstTensorView acquire(int block) override;
  void release(int block) override;

  std::vector<int> acquired;  ///< in order
  int held = -1;

 private:
  DType dtype_;
  std::vector<Buffer> blocks_;
};

/// Sums per block on the device; notes the order of ready().
class CollectedGradients : public GradientSink {
 public:
  CollectedGradients(Device& device, const ParameterTable& table);
  TensorView accumulator(int block) override;
  void ready(int block) override { ready_blocks.push_back(block); }
  /// By parameter name.
  std::map<std::string, std::vector<float>> by_name() const;

  std::vector<int> ready_blocks;

 private:
  const ParameterTable* table_;
  std::vector<Buffer> blocks_;
};

/// One causal segment per sequence of the batch that is set.
class PlainAttention : public AttentionExecutor {
 public:
  PlainAttention(Device& device, const Qwen2Config& config) : device_(&device), config_(config) {}
  void set_batch(const MicroBatch& batch);
  void forward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out,
               TensorView lse) override;
  void backward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView out,
                ConstTensorView lse, ConstTensorView dout, TensorView dq, TensorView dk, TensorView dv) override;

 private:
  Device* device_;
  Qwen2Config config_;
  std::vector<AttentionSegment> segments_;
};

/// Whole sequences back to back; labels hold ignored_label or the next token; every weight is `weight`.
MicroBatch pack(const std::vector<std::vector<std::int32_t>>& ids, const std::vector<std::vector<std::int32_t>>& labels,
                float weight);

struct StepResult {
  LossSums sums;
  std::map<std::string, std::vector<float>> gradients;
};

/// A model folder, loaded.
class LoadedModel {
 public:
  LoadedModel(const std::filesystem::path& folder, TransformerOptions options);
  LoadedModel(const Qwen2Config& config, TransformerOptions options);

  StepResult step(const MicroBatch& batch);
  LossSums evaluate(const MicroBatch& batch);
  /// Of every packed row, row after row.
  std::vector<float> logits(const MicroBatch& batch);
  std::vector<float> logits(const MicroBatch& batch, const std::vector<std::int32_t>& rows,
                            AttentionExecutor& executor);

  std::unique_ptr<Device> device = make_cpu_device(1);  // such small models are slower on more threads
  Qwen2Config config;
  Transformer model;
  HostParameters masters{model.parameters()};
  std::unique_ptr<ResidentParameters> parameters;
  PlainAttention attention{*device, config};
};

/// |a - b| / |b| in the 2-norm.
double relative_error(const std::vector<float>& a, const std::vector<float>& b);
double cosine(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace skrull::test

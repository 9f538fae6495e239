#include "model_fixture.h"

#include <cmath>
#include <numeric>

#include "skrull/core/error.h"
#include "skrull/device/ops.h"

namespace skrull::test {

ResidentParameters::ResidentParameters(Device& device, const ParameterTable& table, DType dtype,
                                       HostParameters& masters)
    : dtype_(dtype) {
  for (int block = 0; block < table.block_count(); ++block) {
    blocks_.push_back(device.allocate(dtype, 1, table.block_elements(block), "parameters"));
    const Buffer master = device.allocate(DType::float32, 1, table.block_elements(block), "parameters");
    const TensorView view = master.view(DType::float32, 1, table.block_elements(block));
    device.copy_to_device(device.compute_stream(), view, masters.values(block).data());
    device.ops().cast(device.compute_stream(), view, blocks_.back().view(dtype, 1, table.block_elements(block)));
    device.compute_stream().synchronize();
  }
}

ConstTensorView ResidentParameters::acquire(int block) {
  require(held < 0, "block {} is acquired while {} is held", block, held);
  held = block;
  acquired.push_back(block);
  const Buffer& buffer = blocks_.at(static_cast<std::size_t>(block));
  return buffer.view(dtype_, 1, buffer.bytes() / size_of(dtype_));
}

void ResidentParameters::release(int block) {
  require(held == block, "block {} is released while {} is held", block, held);
  held = -1;
}

CollectedGradients::CollectedGradients(Device& device, const ParameterTable& table) : table_(&table) {
  for (int block = 0; block < table.block_count(); ++block) {
    blocks_.push_back(device.allocate(DType::float32, 1, table.block_elements(block), "gradients"));
  }
}

TensorView CollectedGradients::accumulator(int block) {
  return blocks_.at(static_cast<std::size_t>(block)).view(DType::float32, 1, table_->block_elements(block));
}

std::map<std::string, std::vector<float>> CollectedGradients::by_name() const {
  std::map<std::string, std::vector<float>> gradients;
  for (const ParameterSpec& parameter : table_->parameters()) {
    const Buffer& buffer = blocks_.at(static_cast<std::size_t>(parameter.block));
    const float* first =
        buffer.view(DType::float32, 1, table_->block_elements(parameter.block)).as<float>() + parameter.offset;
    gradients[parameter.name] = {first, first + parameter.elements()};
  }
  return gradients;
}

void PlainAttention::set_batch(const MicroBatch& batch) {
  segments_.clear();
  for (const PackedSequence& sequence : batch.local) {
    segments_.push_back({.q_begin = sequence.begin,
                         .q_len = sequence.length,
                         .k_begin = sequence.begin,
                         .k_len = sequence.length,
                         .causal = true});
  }
}

void PlainAttention::forward(std::int64_t /*layer*/, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                             TensorView out, TensorView lse) {
  device_->ops().attention_forward(
      device_->compute_stream(),
      {.shape = attention_shape(config_), .segments = segments_, .q = q, .k = k, .v = v, .out = out, .lse = lse});
}

void PlainAttention::backward(std::int64_t /*layer*/, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                              ConstTensorView out, ConstTensorView lse, ConstTensorView dout, TensorView dq,
                              TensorView dk, TensorView dv) {
  const Buffer delta = device_->allocate(DType::float32, q.rows(), config_.num_heads, "attention");
  const TensorView delta_view = delta.view(DType::float32, q.rows(), config_.num_heads);
  device_->ops().attention_delta(device_->compute_stream(), config_.head_dim, out, dout, delta_view);
  device_->ops().attention_backward(device_->compute_stream(), {.shape = attention_shape(config_),
                                                                .segments = segments_,
                                                                .q = q,
                                                                .k = k,
                                                                .v = v,
                                                                .out = out,
                                                                .dout = dout,
                                                                .lse = lse,
                                                                .delta = delta_view,
                                                                .dq = dq,
                                                                .dk = dk,
                                                                .dv = dv});
}

MicroBatch pack(const std::vector<std::vector<std::int32_t>>& ids, const std::vector<std::vector<std::int32_t>>& labels,
                float weight) {
  MicroBatch batch;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    batch.local.push_back({.begin = batch.tokens(),
                           .length = static_cast<std::int64_t>(ids[i].size()),
                           .sample = static_cast<std::int64_t>(i)});
    for (std::size_t t = 0; t < ids[i].size(); ++t) {
      batch.ids.push_back(ids[i][t]);
      batch.positions.push_back(static_cast<std::int32_t>(t));
      batch.labels.push_back(labels[i][t]);
      batch.weights.push_back(labels[i][t] == ignored_label ? 0.0F : weight);
    }
  }
  return batch;
}

LoadedModel::LoadedModel(const std::filesystem::path& folder, TransformerOptions options)
    : config(load_qwen2_config(folder)), model(config, options, *device) {
  load_parameters(folder, model.parameters(), masters.blocks());
  parameters = std::make_unique<ResidentParameters>(*device, model.parameters(), options.compute_dtype, masters);
}

LoadedModel::LoadedModel(const Qwen2Config& the_config, TransformerOptions options)
    : config(the_config), model(config, options, *device) {
  initialize_parameters(3, 0.1, model.parameters(), masters.blocks());
  parameters = std::make_unique<ResidentParameters>(*device, model.parameters(), options.compute_dtype, masters);
}

StepResult LoadedModel::step(const MicroBatch& batch) {
  attention.set_batch(batch);
  CollectedGradients gradients(*device, model.parameters());
  const LossSums sums = model.forward_backward(batch, *parameters, attention, gradients).sums();
  return {sums, gradients.by_name()};
}

LossSums LoadedModel::evaluate(const MicroBatch& batch) {
  attention.set_batch(batch);
  return model.evaluate(batch, *parameters, attention);
}

std::vector<float> LoadedModel::logits(const MicroBatch& batch) {
  attention.set_batch(batch);
  std::vector<std::int32_t> rows(static_cast<std::size_t>(batch.tokens()));
  std::iota(rows.begin(), rows.end(), 0);
  return logits(batch, rows, attention);
}

std::vector<float> LoadedModel::logits(const MicroBatch& batch, const std::vector<std::int32_t>& rows,
                                       AttentionExecutor& executor) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const Buffer buffer = device->allocate(DType::float32, count, config.vocab_size, "logits");
  const TensorView view = buffer.view(DType::float32, count, config.vocab_size);
  model.logits(batch, rows, *parameters, executor, view);
  std::vector<float> values(static_cast<std::size_t>(view.elements()));
  device->copy_to_host(device->compute_stream(), values.data(), view);
  device->compute_stream().synchronize();
  return values;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  require(a.size() == b.size(), "{} and {} values to compare", a.size(), b.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  require(a.size() == b.size(), "{} and {} values to compare", a.size(), b.size());
  double product = 0;
  double size_a = 0;
  double size_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    size_a += std::pow(static_cast<double>(a[i]), 2);
    size_b += std::pow(static_cast<double>(b[i]), 2);
  }
  return product / std::sqrt(size_a * size_b);
}

}  // namespace skrull::test

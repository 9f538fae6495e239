#include "skrull/model/parameter_table.h"

#include <numeric>

#include "skrull/core/error.h"

namespace skrull {
namespace {

/// Appends parameters block after block.
class Builder {
 public:
  void begin_block() { block_elements.push_back(0); }
  void matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
    add({.name = name, .rows = rows, .cols = cols, .init = ParameterInit::normal, .weight_decay = true});
  }
  void vector(const std::string& name, std::int64_t size, ParameterInit init) {
    add({.name = name, .rows = 1, .cols = size, .is_vector = true, .init = init, .weight_decay = false});
  }
  int last_block() const { return static_cast<int>(block_elements.size()) - 1; }

  std::vector<ParameterSpec> parameters;
  std::vector<std::int64_t> block_elements;

 private:
  void add(ParameterSpec parameter) {
    parameter.block = last_block();
    parameter.offset = block_elements.back();
    block_elements.back() += parameter.elements();
    parameters.push_back(std::move(parameter));
  }
};

/// Fused projections are one matrix because their parts follow each other here; their biases likewise.
void add_layer(Builder& builder, const Qwen2Config& config, const std::string& layer) {
  const std::int64_t h = config.hidden_size;
  const std::int64_t f = config.intermediate_size;
  builder.begin_block();
  builder.vector(layer + "input_layernorm.weight", h, ParameterInit::ones);
  builder.matrix(layer + "self_attn.q_proj.weight", config.query_size(), h);
  builder.matrix(layer + "self_attn.k_proj.weight", config.key_value_size(), h);
  builder.matrix(layer + "self_attn.v_proj.weight", config.key_value_size(), h);
  builder.vector(layer + "self_attn.q_proj.bias", config.query_size(), ParameterInit::zeros);
  builder.vector(layer + "self_attn.k_proj.bias", config.key_value_size(), ParameterInit::zeros);
  builder.vector(layer + "self_attn.v_proj.bias", config.key_value_size(), ParameterInit::zeros);
  builder.matrix(layer + "self_attn.o_proj.weight", h, config.query_size());
  builder.vector(layer + "post_attention_layernorm.weight", h, ParameterInit::ones);
  builder.matrix(layer + "mlp.gate_proj.weight", f, h);
  builder.matrix(layer + "mlp.up_proj.weight", f, h);
  builder.matrix(layer + "mlp.down_proj.weight", h, f);
}

}  // namespace

ParameterTable::ParameterTable(const Qwen2Config& config) {
  Builder builder;
  builder.begin_block();
  builder.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    add_layer(builder, config, fmt::format("model.layers.{}.", layer));
  }
  builder.begin_block();
  final_norm_block_ = builder.last_block();
  builder.vector("model.norm.weight", config.hidden_size, ParameterInit::ones);
  if (!config.tie_word_embeddings) {
    builder.begin_block();
    head_block_ = builder.last_block();
    builder.matrix("lm_head.weight", config.vocab_size, config.hidden_size);
  }
  parameters_ = std::move(builder.parameters);
  block_elements_ = std::move(builder.block_elements);
}

std::int64_t ParameterTable::total_elements() const {
  return std::accumulate(block_elements_.begin(), block_elements_.end(), std::int64_t{0});
}

std::vector<ParameterSpec> ParameterTable::parameters_of(int block) const {
  std::vector<ParameterSpec> found;
  for (const ParameterSpec& parameter : parameters_) {
    if (parameter.block == block) found.push_back(parameter);
  }
  return found;
}

const ParameterSpec& ParameterTable::find(const std::string& name) const {
  for (const ParameterSpec& parameter : parameters_) {
    if (parameter.name == name) return parameter;
  }
  throw_run_failure("the model has no parameter {}", name);
}

}  // namespace skrull

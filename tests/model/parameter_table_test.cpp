#include "skrull/model/parameter_table.h"

#include <set>

#include "message.h"

using namespace skrull;

namespace {

Qwen2Config shape(std::int64_t vocab, std::int64_t hidden, std::int64_t mlp, std::int64_t layers, std::int64_t heads,
                  std::int64_t kv_heads, std::int64_t head_dim, bool tied) {
  Qwen2Config config;
  config.vocab_size = vocab;
  config.hidden_size = hidden;
  config.intermediate_size = mlp;
  config.num_layers = layers;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.tie_word_embeddings = tied;
  return config;
}

}  // namespace

TEST_CASE("the table has the published number of parameters") {
  const Qwen2Config half_billion = shape(151936, 896, 4864, 24, 14, 2, 64, true);
  CHECK(ParameterTable(half_billion).total_elements() == 494'032'768);
  CHECK(half_billion.parameter_count() == 494'032'768);
  const Qwen2Config seven_billion = shape(152064, 3584, 18944, 28, 28, 4, 128, false);
  CHECK(ParameterTable(seven_billion).total_elements() == 7'615'616'512);
  CHECK(seven_billion.parameter_count() == 7'615'616'512);
  CHECK(ParameterTable(seven_billion).parameters().size() == 28 * 12 + 3);
}

TEST_CASE("every element of every block belongs to exactly one parameter") {
  for (const bool tied : {true, false}) {
    const ParameterTable table(shape(11, 6, 5, 3, 3, 1, 4, tied));
    std::set<std::string> names;
    std::int64_t previous_block = -1;
    std::int64_t end = 0;
    for (const ParameterSpec& parameter : table.parameters()) {
      if (parameter.block != previous_block) {
        if (previous_block >= 0) CHECK(end == table.block_elements(static_cast<int>(previous_block)));
        CHECK(parameter.block == previous_block + 1);
        previous_block = parameter.block;
        end = 0;
      }
      CHECK(parameter.offset == end);
      end += parameter.elements();
      CHECK(names.insert(parameter.name).second);
      CHECK(table.find(parameter.name).offset == parameter.offset);
      CHECK(parameter.weight_decay == !parameter.is_vector);
    }
    CHECK(end == table.block_elements(table.block_count() - 1));
    CHECK(table.block_count() == (tied ? 5 : 6));
    CHECK(table.embedding_block() == 0);
    CHECK(table.layer_block(2) == 3);
    CHECK(table.final_norm_block() == 4);
    CHECK(table.head_block() == (tied ? 0 : 5));
    CHECK(names.contains("lm_head.weight") == !tied);
  }
}

TEST_CASE("fused projections are one matrix of the block") {
  const ParameterTable table(shape(11, 6, 5, 2, 3, 1, 4, true));
  const auto follows = [&](const std::string& a, const std::string& b) {
    const ParameterSpec& first = table.find("model.layers.1." + a);
    return first.offset + first.elements() == table.find("model.layers.1." + b).offset;
  };
  CHECK(follows("self_attn.q_proj.weight", "self_attn.k_proj.weight"));
  CHECK(follows("self_attn.k_proj.weight", "self_attn.v_proj.weight"));
  CHECK(follows("self_attn.q_proj.bias", "self_attn.k_proj.bias"));
  CHECK(follows("self_attn.k_proj.bias", "self_attn.v_proj.bias"));
  CHECK(follows("mlp.gate_proj.weight", "mlp.up_proj.weight"));
  const ParameterSpec& key = table.find("model.layers.1.self_attn.k_proj.weight");
  CHECK(key.rows == 4);
  CHECK(key.cols == 6);
  CHECK(key.block == 2);
  CHECK(table.parameters_of(2).size() == 12);
  CHECK(test::contains_all(test::message_of<RunFailure>([&] { table.find("lm_head.weight"); }), {"lm_head.weight"}));

  std::vector<float> block(static_cast<std::size_t>(table.block_elements(2)));
  const TensorView view(block.data(), DType::float32, 1, table.block_elements(2));
  CHECK(slice_parameter(view, key).as<float>() == block.data() + key.offset);
  CHECK(slice_parameter(view, key).rows() == 4);
}

#include "skrull/model/qwen2_config.h"

#include "message.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "support/support.h"

using namespace skrull;

namespace {

/// Qwen2.5-0.5B.
Json half_billion() {
  return {{"architectures", {"Qwen2ForCausalLM"}},
          {"attention_dropout", 0.0},
          {"bos_token_id", 151643},
          {"eos_token_id", 151645},
          {"hidden_act", "silu"},
          {"hidden_size", 896},
          {"initializer_range", 0.02},
          {"intermediate_size", 4864},
          {"max_position_embeddings", 32768},
          {"model_type", "qwen2"},
          {"num_attention_heads", 14},
          {"num_hidden_layers", 24},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-06},
          {"rope_theta", 1000000.0},
          {"sliding_window", 32768},
          {"tie_word_embeddings", true},
          {"torch_dtype", "bfloat16"},
          {"use_sliding_window", false},
          {"vocab_size", 151936}};
}

Qwen2Config load(const Json& values) {
  const test::TemporaryFolder folder;
  write_file_atomically(folder / "config.json", values.dump(2));
  return load_qwen2_config(folder.path());
}

Qwen2Config load_with(const std::string& key, const Json& value) {
  Json values = half_billion();
  values[key] = value;
  return load(values);
}

std::string refusal(const std::string& key, const Json& value) {
  return test::message_of<InvalidInput>([&] { load_with(key, value); });
}

}  // namespace

TEST_CASE("a published config.json is read completely") {
  const Qwen2Config config = load(half_billion());
  CHECK(config.vocab_size == 151936);
  CHECK(config.hidden_size == 896);
  CHECK(config.intermediate_size == 4864);
  CHECK(config.num_layers == 24);
  CHECK(config.num_heads == 14);
  CHECK(config.num_kv_heads == 2);
  CHECK(config.head_dim == 64);
  CHECK(config.max_position_embeddings == 32768);
  CHECK(config.rms_norm_eps == 1e-6);
  CHECK(config.rope_theta == 1e6);
  CHECK(config.initializer_range == 0.02);
  CHECK(config.tie_word_embeddings);
  CHECK(config.stored_dtype == DType::bfloat16);
  CHECK(config.eos_token_ids == std::vector<std::int64_t>{151645});
  CHECK(config.query_size() == 896);
  CHECK(config.key_value_size() == 128);
  CHECK(config.qkv_size() == 1152);
  CHECK(config.parameter_count() == 494'032'768);
}

TEST_CASE("missing keys take transformers' defaults") {
  Json values = half_billion();
  for (const char* key : {"tie_word_embeddings", "rope_theta", "rms_norm_eps", "torch_dtype", "eos_token_id",
                          "max_position_embeddings", "hidden_act", "use_sliding_window"}) {
    values.erase(key);
  }
  const Qwen2Config config = load(values);
  CHECK_FALSE(config.tie_word_embeddings);
  CHECK(config.rope_theta == 10000.0);
  CHECK(config.stored_dtype == DType::float32);
  CHECK(config.eos_token_ids.empty());
  CHECK(config.max_position_embeddings == 32768);
  CHECK(config.parameter_count() == 494'032'768 + 151936 * 896);
}

TEST_CASE("the forms newer transformers write are read") {
  Json values = half_billion();
  values.erase("rope_theta");
  values.erase("torch_dtype");
  values["dtype"] = "float16";
  values["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  values["rope_scaling"] = nullptr;
  values["layer_types"] = std::vector<std::string>(24, "full_attention");
  values["eos_token_id"] = {151645, 151643};
  const Qwen2Config config = load(values);
  CHECK(config.rope_theta == 500000.0);
  CHECK(config.stored_dtype == DType::float16);
  CHECK(config.eos_token_ids == std::vector<std::int64_t>{151645, 151643});
  CHECK(load_with("rope_scaling", {{"rope_type", "default"}}).rope_theta == 1e6);
  CHECK(load_with("num_key_value_heads", nullptr).num_kv_heads == 14);
  CHECK(load_with("head_dim", 128).qkv_size() == 18 * 128);
  CHECK(load_with("eos_token_id", nullptr).eos_token_ids.empty());
}

TEST_CASE("what is missing, mistyped or not supported is refused by file and key") {
  using test::contains_all;
  Json values = half_billion();
  values.erase("hidden_size");
  CHECK(contains_all(test::message_of<InvalidInput>([&] { load(values); }), {"config.json", "hidden_size", "missing"}));
  CHECK(contains_all(refusal("hidden_size", "896"), {"hidden_size", "whole number", "\"896\""}));
  CHECK(contains_all(refusal("hidden_size", 896.5), {"hidden_size", "896.5"}));
  CHECK(contains_all(refusal("vocab_size", 0), {"vocab_size", "got 0"}));
  CHECK(contains_all(refusal("vocab_size", 18446744073709551615ULL), {"vocab_size"}));
  CHECK(contains_all(refusal("rms_norm_eps", "small"), {"rms_norm_eps", "a number"}));
  CHECK(contains_all(refusal("rms_norm_eps", 0.0), {"rms_norm_eps"}));
  CHECK(contains_all(refusal("rope_theta", -1), {"rope_theta"}));
  CHECK(contains_all(refusal("tie_word_embeddings", 1), {"tie_word_embeddings", "true or false"}));
  CHECK(contains_all(refusal("num_key_value_heads", 4), {"num_attention_heads 14", "num_key_value_heads 4"}));
  CHECK(contains_all(refusal("hidden_size", 900), {"hidden_size 900", "num_attention_heads 14"}));
  CHECK(contains_all(refusal("head_dim", 63), {"63", "odd"}));
  CHECK(contains_all(refusal("model_type", "llama"), {"model_type", "qwen2", "llama"}));
  CHECK(contains_all(refusal("architectures", {"Qwen2ForSequenceClassification"}), {"architectures", "CausalLM"}));
  CHECK(contains_all(refusal("hidden_act", "gelu"), {"hidden_act", "silu", "gelu"}));
  CHECK(contains_all(refusal("attention_dropout", 0.1), {"attention_dropout", "0.1"}));
  CHECK(contains_all(refusal("use_sliding_window", true), {"use_sliding_window", "not supported"}));
  CHECK(contains_all(refusal("layer_types", {"full_attention", "sliding_attention"}), {"layer_types", "sliding"}));
  CHECK(
      contains_all(refusal("rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}), {"rope_scaling", "YaRN", "version"}));
  CHECK(contains_all(refusal("rope_parameters", {{"rope_type", "linear"}}), {"rope_parameters", "linear"}));
  CHECK(contains_all(refusal("torch_dtype", "int8"), {"torch_dtype", "int8", "bfloat16"}));
  CHECK(contains_all(refusal("eos_token_id", 151936), {"eos_token_id", "151936"}));
  CHECK(contains_all(refusal("quantization_config", {{"bits", 4}}), {"quantization_config"}));
  const test::TemporaryFolder folder;
  CHECK(contains_all(test::message_of<InvalidInput>([&] { load_qwen2_config(folder.path()); }), {"config.json"}));
  write_file_atomically(folder / "config.json", "[1]");
  CHECK(contains_all(test::message_of<InvalidInput>([&] { load_qwen2_config(folder.path()); }), {"object"}));
}

TEST_CASE("training FLOPs of a shape small enough to count by hand") {
  Qwen2Config config;
  config.vocab_size = 10;
  config.hidden_size = 4;
  config.intermediate_size = 3;
  config.num_layers = 2;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 2;
  // Weights a token meets in a layer: q 16, k 8, v 8, o 16, gate, up, down 12 each = 84; head 40: 2 (2 x 84 + 40) =
  // 416. Attention: layers 2 x heads 2 x size 2 x 2 x (3 x 4 + 1 x 2) = 224.
  CHECK(config.training_flops({3, 1}) == 3 * (4 * 416 + 224));
  CHECK(config.training_flops({}) == 0);
}

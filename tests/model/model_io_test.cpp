#include "skrull/model/model_io.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "host_parameters.h"
#include "message.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/model/safetensors.h"
#include "support/support.h"

using namespace skrull;
namespace fs = std::filesystem;
using test::contains_all;

namespace {

OrderedJson small_config(bool tied) {
  return {{"model_type", "qwen2"},
          {"architectures", {"Qwen2ForCausalLM"}},
          {"hidden_size", 8},
          {"intermediate_size", 5},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"vocab_size", 13},
          {"tie_word_embeddings", tied},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"rms_norm_eps", 1e-06},
          {"torch_dtype", "float32"}};
}

/// Tensors of a folder by which a test builds a right or a wrong one.
std::vector<TensorToWrite> tensors_of(const ParameterTable& table, test::HostParameters& values) {
  std::vector<TensorToWrite> tensors;
  for (const ParameterSpec& parameter : table.parameters()) {
    const std::vector<float> elements = values.values(parameter.name);
    const auto fill = [elements](std::int64_t first, std::span<char> target) {
      std::memcpy(target.data(), elements.data() + first, target.size());
    };
    std::vector<std::int64_t> shape = {parameter.rows, parameter.cols};
    if (parameter.is_vector) shape = {parameter.cols};
    tensors.push_back({parameter.name, DType::float32, shape, fill});
  }
  return tensors;
}

/// A small model with random values and the folder it is stored in.
struct StoredModel {
  explicit StoredModel(const OrderedJson& config_json)
      : config(write_config(config_json)), table(config), values(table) {
    initialize_parameters(7, 0.02, table, values.blocks());
    for (int block = 0; block < table.block_count(); ++block) {
      float next = 0.25F;
      for (float& value : values.values(block)) value += (next += 0.001F);
    }
    write_safetensors(folder.path(), tensors_of(table, values));
  }

  Qwen2Config write_config(const OrderedJson& json) const {
    write_json_file(folder / "config.json", json);
    return load_qwen2_config(folder.path());
  }
  std::string load_refusal(const std::vector<TensorToWrite>& tensors) {
    write_safetensors(folder.path(), tensors);
    test::HostParameters loaded(table);
    return test::message_of<InvalidInput>([&] { load_parameters(folder.path(), table, loaded.blocks()); });
  }

  test::TemporaryFolder folder;
  Qwen2Config config;
  ParameterTable table;
  test::HostParameters values;
};

/// Every element holds `value`.
template <class Value>
TensorToWrite constant(const std::string& name, DType dtype, std::vector<std::int64_t> shape, Value value) {
  const auto fill = [value](std::int64_t, std::span<char> target) {
    for (std::size_t i = 0; i < target.size(); i += sizeof value) std::memcpy(target.data() + i, &value, sizeof value);
  };
  return {name, dtype, std::move(shape), fill};
}

std::vector<std::string> stored_names(const fs::path& folder) {
  const SafetensorsReader reader(folder);
  std::vector<std::string> names;
  for (const StoredTensor& tensor : reader.tensors()) names.push_back(tensor.name);
  return names;
}

}  // namespace

TEST_CASE("initial values depend on the seed and the parameter alone") {
  const StoredModel model(small_config(false));
  test::HostParameters a(model.table);
  test::HostParameters b(model.table);
  initialize_parameters(1, 0.02, model.table, a.blocks());
  initialize_parameters(1, 0.02, model.table, b.blocks());
  CHECK(a == b);
  initialize_parameters(2, 0.02, model.table, b.blocks());
  CHECK_FALSE(a == b);
  CHECK(a.values("model.norm.weight") == std::vector<float>(8, 1.0F));
  CHECK(a.values("model.layers.1.self_attn.q_proj.bias") == std::vector<float>(8, 0.0F));
  CHECK(a.values("lm_head.weight") != a.values("model.embed_tokens.weight"));
  double sum = 0;
  double squares = 0;
  std::int64_t count = 0;
  for (const ParameterSpec& parameter : model.table.parameters()) {
    if (parameter.is_vector) continue;
    for (const float value : a.values(parameter.name)) {
      sum += value;
      squares += static_cast<double>(value) * value;
      ++count;
    }
  }
  // 832 draws: the mean is within 4 standard errors, the deviation within 10%.
  CHECK(count == 832);
  CHECK(std::abs(sum / static_cast<double>(count)) < 4 * 0.02 / std::sqrt(static_cast<double>(count)));
  CHECK(std::sqrt(squares / static_cast<double>(count)) == Approx(0.02).epsilon(0.1));
}

TEST_CASE("what was stored is loaded, whatever the sharding") {
  for (const bool tied : {true, false}) {
    StoredModel model(small_config(tied));
    for (const std::int64_t shard_bytes : {std::int64_t{100}, std::int64_t{1000}, std::int64_t{1} << 40}) {
      write_safetensors(model.folder.path(), tensors_of(model.table, model.values), shard_bytes);
      test::HostParameters loaded(model.table);
      load_parameters(model.folder.path(), model.table, loaded.blocks());
      CHECK(loaded == model.values);
    }
  }
}

TEST_CASE("BF16 and F16 weights are converted exactly") {
  StoredModel model(small_config(true));
  std::vector<TensorToWrite> tensors = tensors_of(model.table, model.values);
  for (TensorToWrite& tensor : tensors) tensor = constant(tensor.name, DType::bfloat16, tensor.shape, bfloat16(-1.5F));
  tensors.back() = constant(tensors.back().name, DType::float16, tensors.back().shape, std::uint16_t{0x3555});
  write_safetensors(model.folder.path(), tensors);
  load_parameters(model.folder.path(), model.table, model.values.blocks());
  CHECK(model.values.values("model.embed_tokens.weight") == std::vector<float>(13 * 8, -1.5F));
  CHECK(model.values.values("model.norm.weight") == std::vector<float>(8, 0.333251953125F));
}

TEST_CASE("weights that do not fit config.json are refused by name and file") {
  StoredModel model(small_config(false));
  const std::string folder = model.folder.path().string();
  const std::vector<TensorToWrite> good = tensors_of(model.table, model.values);

  std::vector<TensorToWrite> tensors = good;
  tensors.erase(tensors.begin() + 2, tensors.begin() + 7);
  CHECK(contains_all(model.load_refusal(tensors),
                     {folder, "missing", "layers.0.self_attn.q_proj.weight", "k_proj.weight", "and 2 more"}));
  tensors = good;
  tensors.pop_back();
  CHECK(contains_all(model.load_refusal(tensors), {"lm_head.weight", "tie_word_embeddings"}));
  tensors = good;
  tensors.push_back(constant("model.layers.2.input_layernorm.weight", DType::float32, {8}, 1.0F));
  CHECK(contains_all(model.load_refusal(tensors),
                     {"model.safetensors", "model.layers.2.input_layernorm.weight", "does not have"}));
  tensors = good;
  tensors[0] = constant("model.embed_tokens.weight", DType::float32, {12, 8}, 1.0F);
  CHECK(contains_all(model.load_refusal(tensors),
                     {"model.safetensors", "model.embed_tokens.weight", "[12, 8]", "[13, 8]"}));
  tensors = good;
  tensors[1] = constant("model.layers.0.input_layernorm.weight", DType::float32, {1, 8}, 1.0F);
  CHECK(contains_all(model.load_refusal(tensors), {"input_layernorm", "[1, 8]", "[8]"}));
  tensors = good;
  tensors[1] = constant("model.layers.0.input_layernorm.weight", DType::float64, {8}, 1.0);
  CHECK(contains_all(model.load_refusal(tensors), {"input_layernorm", "float64", "bfloat16"}));
}

TEST_CASE("buffers of old checkpoints are ignored") {
  StoredModel model(small_config(true));
  std::vector<TensorToWrite> tensors = tensors_of(model.table, model.values);
  tensors.push_back(constant("model.layers.0.self_attn.rotary_emb.inv_freq", DType::float32, {2}, 1.0F));
  write_safetensors(model.folder.path(), tensors);
  test::HostParameters loaded(model.table);
  load_parameters(model.folder.path(), model.table, loaded.blocks());
  CHECK(loaded == model.values);
}

TEST_CASE("a stored head of a tied model must be the embedding") {
  StoredModel model(small_config(true));
  std::vector<TensorToWrite> tensors = tensors_of(model.table, model.values);
  TensorToWrite head = tensors.front();
  head.name = "lm_head.weight";
  tensors.push_back(head);
  write_safetensors(model.folder.path(), tensors);
  test::HostParameters loaded(model.table);
  load_parameters(model.folder.path(), model.table, loaded.blocks());
  CHECK(loaded == model.values);
  // Saving leaves it out.
  const test::TemporaryFolder exported;
  save_model_folder(exported.path(), model.folder.path(), model.table, loaded.blocks(), DType::float32);
  std::vector<std::string> names = stored_names(model.folder.path());
  names.pop_back();
  CHECK(stored_names(exported.path()) == names);

  tensors.back().fill = [&](std::int64_t first, std::span<char> target) {
    head.fill(first, target);
    target.back() = static_cast<char>(target.back() ^ 1);
  };
  CHECK(contains_all(model.load_refusal(tensors), {"lm_head.weight", "embed_tokens", "row 12", "tie_word_embeddings"}));
}

TEST_CASE("a saved folder holds what the source did") {
  StoredModel model(small_config(false));
  // The order of the source's file, not the table's.
  std::vector<TensorToWrite> tensors = tensors_of(model.table, model.values);
  std::reverse(tensors.begin(), tensors.end());
  write_safetensors(model.folder.path(), tensors);
  const std::string odd_text = "{ \"eos_token\":   \"<|endoftext|>\"}";
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
                           "merges.txt", "added_tokens.json", "chat_template.jinja"}) {
    write_file_atomically(model.folder / name, odd_text + name);
  }
  write_file_atomically(model.folder / "generation_config.json", "{\"eos_token_id\":  [2], \"top_p\": 0.8}");
  write_file_atomically(model.folder / "README.md", "not copied");

  const test::TemporaryFolder parent;
  const fs::path folder = parent / "made" / "here";
  save_model_folder(folder, model.folder.path(), model.table, model.values.blocks(), DType::float32);
  CHECK(stored_names(folder) == stored_names(model.folder.path()));
  CHECK(stored_names(folder).front() == "lm_head.weight");
  CHECK(read_file(folder / "model.safetensors") == read_file(model.folder / "model.safetensors"));
  CHECK(read_file(folder / "config.json") == read_file(model.folder / "config.json"));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
                           "merges.txt", "added_tokens.json", "chat_template.jinja", "generation_config.json"}) {
    CHECK(read_file(folder / name) == read_file(model.folder / name));
  }
  CHECK_FALSE(fs::exists(folder / "README.md"));
  CHECK(load_eos_token_ids(folder) == std::vector<std::int64_t>{2});
}

TEST_CASE("weights are rounded to the dtype of the saved folder, and config.json says so") {
  StoredModel model(small_config(true));
  for (const auto& [dtype, name] : {std::pair(DType::bfloat16, "bfloat16"), std::pair(DType::float16, "float16")}) {
    const test::TemporaryFolder folder;
    save_model_folder(folder.path(), model.folder.path(), model.table, model.values.blocks(), dtype);
    const OrderedJson config = read_ordered_json_file(folder / "config.json");
    CHECK(config["torch_dtype"] == name);
    CHECK_FALSE(config.contains("dtype"));
    CHECK(read_ordered_json_file(folder / "generation_config.json") ==
          OrderedJson({{"bos_token_id", 1}, {"eos_token_id", 2}}));
    test::HostParameters loaded(model.table);
    load_parameters(folder.path(), model.table, loaded.blocks());
    const std::vector<float> before = model.values.values("model.layers.1.mlp.up_proj.weight");
    const std::vector<float> after = loaded.values("model.layers.1.mlp.up_proj.weight");
    for (std::size_t i = 0; i < before.size(); ++i) {
      const float rounded = dtype == DType::bfloat16 ? static_cast<float>(bfloat16(before[i]))
                                                     : float_from_half(half_from_float(before[i]));
      CHECK(after[i] == rounded);
    }
  }
  OrderedJson config = small_config(true);
  config.erase("torch_dtype");
  config["dtype"] = "float32";
  write_json_file(model.folder / "config.json", config);
  const test::TemporaryFolder folder;
  save_model_folder(folder.path(), model.folder.path(), model.table, model.values.blocks(), DType::bfloat16);
  config["dtype"] = "bfloat16";
  CHECK(read_ordered_json_file(folder / "config.json") == config);
}

TEST_CASE("without a dtype every tensor keeps its own") {
  StoredModel model(small_config(false));
  std::vector<TensorToWrite> tensors = tensors_of(model.table, model.values);
  for (TensorToWrite& tensor : tensors) {
    if (tensor.shape.size() < 2) continue;  // norms and biases stay float32
    tensor = constant(tensor.name, DType::bfloat16, tensor.shape, bfloat16(-1.5F));
  }
  tensors.back() = constant(tensors.back().name, DType::float16, tensors.back().shape, std::uint16_t{0x3555});
  write_safetensors(model.folder.path(), tensors);
  load_parameters(model.folder.path(), model.table, model.values.blocks());
  const test::TemporaryFolder folder;
  save_model_folder(folder.path(), model.folder.path(), model.table, model.values.blocks(), std::nullopt);
  CHECK(read_file(folder / "model.safetensors") == read_file(model.folder / "model.safetensors"));
  CHECK(read_ordered_json_file(folder / "config.json")["torch_dtype"] == "bfloat16");  // of most of the bytes
}

TEST_CASE("a base model tuned on chats stops at the end of a turn") {
  StoredModel model(small_config(true));
  const EndOfTurn end_of_turn = {5, "<|im_end|>"};
  write_file_atomically(model.folder / "tokenizer_config.json",
                        R"({"add_bos_token": false, "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"})");
  write_file_atomically(model.folder / "special_tokens_map.json",
                        R"({"eos_token": {"content": "<|endoftext|>", "lstrip": false}})");
  write_file_atomically(model.folder / "generation_config.json", R"({"eos_token_id": 2, "max_new_tokens": 2048})");
  const test::TemporaryFolder folder;
  const auto save = [&] {
    save_model_folder(folder.path(), model.folder.path(), model.table, model.values.blocks(), DType::float32,
                      end_of_turn);
  };
  save();
  OrderedJson config = small_config(true);
  config["eos_token_id"] = 5;
  CHECK(read_ordered_json_file(folder / "config.json") == config);
  CHECK(read_ordered_json_file(folder / "generation_config.json") ==
        OrderedJson({{"eos_token_id", {5, 2}}, {"max_new_tokens", 2048}}));
  CHECK(read_ordered_json_file(folder / "tokenizer_config.json") ==
        OrderedJson({{"add_bos_token", false}, {"eos_token", "<|im_end|>"}, {"pad_token", "<|endoftext|>"}}));
  CHECK(read_ordered_json_file(folder / "special_tokens_map.json")["eos_token"]["content"] == "<|im_end|>");
  CHECK(load_eos_token_ids(folder.path()) == std::vector<std::int64_t>{5, 2});

  // Without generation_config.json one is made.
  fs::remove(model.folder / "generation_config.json");
  save();
  CHECK(read_ordered_json_file(folder / "generation_config.json") ==
        OrderedJson({{"bos_token_id", 1}, {"eos_token_id", {5, 2}}}));
}

TEST_CASE("an instruct model's files stay as they were") {
  OrderedJson config = small_config(true);
  config["eos_token_id"] = 5;
  StoredModel model(config);
  write_file_atomically(model.folder / "tokenizer_config.json", "{\"eos_token\":   \"<|im_end|>\"}");
  write_file_atomically(model.folder / "generation_config.json", "{\"eos_token_id\":   [5, 2]}");
  const test::TemporaryFolder folder;
  save_model_folder(folder.path(), model.folder.path(), model.table, model.values.blocks(), DType::float32,
                    {5, "<|im_end|>"});
  for (const char* name : {"tokenizer_config.json", "generation_config.json", "config.json"}) {
    CHECK(read_file(folder / name) == read_file(model.folder / name));
  }
}

TEST_CASE("a folder that can't be made or a broken source is an error") {
  StoredModel model(small_config(true));
  const test::TemporaryFolder folder;
  write_file_atomically(folder / "file", "x");
  const auto save = [&](const fs::path& to) {
    save_model_folder(to, model.folder.path(), model.table, model.values.blocks(), DType::float32, {5, "<|im_end|>"});
  };
  CHECK(contains_all(test::message_of<RunFailure>([&] { save(folder / "file" / "below"); }), {"file/below"}));
  write_file_atomically(model.folder / "generation_config.json", R"({"eos_token_id": "two"})");
  CHECK(contains_all(test::message_of<InvalidInput>([&] { save(folder / "out"); }),
                     {"generation_config.json", "eos_token_id", "two"}));
}

#include "skrull/model/named_models.h"

#include <array>
#include <filesystem>
#include <string_view>

#include "skrull/core/error.h"

namespace skrull {
namespace {

struct NamedModel {
  std::string_view name;
  std::int64_t hidden_size;
  std::int64_t intermediate_size;
  std::int64_t num_layers;
  std::int64_t num_heads;
  std::int64_t num_kv_heads;
  std::int64_t vocab_size;
  bool tied_head;
};

constexpr std::array named_models = {
    NamedModel{"0.5b", 896, 4864, 24, 14, 2, 151936, true},   NamedModel{"1.5b", 1536, 8960, 28, 12, 2, 151936, true},
    NamedModel{"3b", 2048, 11008, 36, 16, 2, 151936, true},   NamedModel{"7b", 3584, 18944, 28, 28, 4, 152064, false},
    NamedModel{"14b", 5120, 13824, 48, 40, 8, 152064, false}, NamedModel{"32b", 5120, 27648, 64, 40, 8, 152064, false},
    NamedModel{"72b", 8192, 29568, 80, 64, 8, 152064, false},
};

Qwen2Config config_of(const NamedModel& model) {
  Qwen2Config config;
  config.vocab_size = model.vocab_size;
  config.hidden_size = model.hidden_size;
  config.intermediate_size = model.intermediate_size;
  config.num_layers = model.num_layers;
  config.num_heads = model.num_heads;
  config.num_kv_heads = model.num_kv_heads;
  config.head_dim = model.hidden_size / model.num_heads;
  config.max_position_embeddings = 32768;
  config.rope_theta = 1e6;
  config.tie_word_embeddings = model.tied_head;
  return config;
}

}  // namespace

Qwen2Config find_model(const std::string& name_or_folder) {
  std::vector<std::string_view> names;
  for (const NamedModel& model : named_models) {
    if (model.name == name_or_folder) return config_of(model);
    names.push_back(model.name);
  }
  if (!std::filesystem::is_directory(name_or_folder)) {
    throw_invalid_input("no model '{}': expected one of {}, or a folder with a config.json", name_or_folder,
                        fmt::join(names, ", "));
  }
  return load_qwen2_config(name_or_folder);
}

}  // namespace skrull

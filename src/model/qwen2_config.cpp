#include "skrull/model/qwen2_config.h"

#include <algorithm>
#include <string_view>

#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/schedule/memory_model.h"
#include "skrull/schedule/zigzag.h"

namespace skrull {
namespace {

// Far above any model; together they keep every count of parameters within 64 bits.
constexpr std::int64_t largest_size = std::int64_t{1} << 24;
constexpr std::int64_t most_layers = std::int64_t{1} << 12;

/// The values of one config.json, with errors that name file and key.
class ConfigFile {
 public:
  explicit ConfigFile(std::filesystem::path file) : file_(std::move(file)), values_(read_json_file(file_)) {
    if (!values_.is_object()) throw_invalid_input("{}: expected a JSON object", file_.string());
  }

  /// nullptr when the key is missing or null.
  const Json* find(std::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void refuse(std::string_view key, std::string_view expected, const Json& got) const {
    throw_invalid_input("{}: key \"{}\": expected {}, got {}", file_.string(), key, expected, got.dump());
  }

  std::int64_t positive(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr) throw_invalid_input("{}: key \"{}\" is missing", file_.string(), key);
    return positive(key, *value);
  }
  std::int64_t positive_or(std::string_view key, std::int64_t otherwise) const {
    const Json* value = find(key);
    return value == nullptr ? otherwise : positive(key, *value);
  }
  double number_or(std::string_view key, double otherwise) const {
    const Json* value = find(key);
    return value == nullptr ? otherwise : number(key, *value);
  }
  bool boolean_or(std::string_view key, bool otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse(key, "true or false", *value);
    return value->get<bool>();
  }
  double number(std::string_view key, const Json& value) const {
    if (!value.is_number()) refuse(key, "a number", value);
    return value.get<double>();
  }
  const std::filesystem::path& file() const { return file_; }

 private:
  std::int64_t positive(std::string_view key, const Json& value) const {
    const bool fits = value.is_number_integer() && value >= 1 && value <= largest_size;
    if (!fits) refuse(key, fmt::format("a whole number from 1 to {}", largest_size), value);
    return value.get<std::int64_t>();
  }

  std::filesystem::path file_;
  Json values_;
};

void check_architecture(const ConfigFile& file) {
  const Json* type = file.find("model_type");
  if (type == nullptr) throw_invalid_input("{}: key \"model_type\" is missing", file.file().string());
  if (*type != "qwen2") file.refuse("model_type", "\"qwen2\" (Qwen2 and Qwen2.5 models)", *type);
  if (const Json* names = file.find("architectures")) {
    const bool known =
        names->is_array() && std::find(names->begin(), names->end(), Json("Qwen2ForCausalLM")) != names->end();
    if (!known) file.refuse("architectures", "[\"Qwen2ForCausalLM\"]", *names);
  }
  if (const Json* activation = file.find("hidden_act"); activation != nullptr && *activation != "silu") {
    file.refuse("hidden_act", "\"silu\"", *activation);
  }
  if (file.number_or("attention_dropout", 0) != 0) {
    file.refuse("attention_dropout", "0 (dropout is not supported)", *file.find("attention_dropout"));
  }
  if (const Json* quantization = file.find("quantization_config")) {
    file.refuse("quantization_config", "none: quantised weights can't be trained; use the unquantised model",
                *quantization);
  }
}

void check_attention_kinds(const ConfigFile& file) {
  if (file.boolean_or("use_sliding_window", false)) {
    file.refuse("use_sliding_window", "false (sliding-window attention is not supported)", Json(true));
  }
  const Json* kinds = file.find("layer_types");
  if (kinds == nullptr) return;
  const bool full = kinds->is_array() && std::all_of(kinds->begin(), kinds->end(),
                                                     [](const Json& kind) { return kind == "full_attention"; });
  if (!full) file.refuse("layer_types", "\"full_attention\" for every layer", *kinds);
}

/// `key` is rope_scaling, or rope_parameters as newer transformers write it; both hold the same object.
void check_rope(const ConfigFile& file, std::string_view key, Qwen2Config& config) {
  const Json* rope = file.find(key);
  if (rope == nullptr) return;
  if (!rope->is_object()) file.refuse(key, "an object or null", *rope);
  for (const char* name : {"rope_type", "type"}) {
    if (rope->contains(name) && (*rope)[name] != "default") {
      file.refuse(
          key,
          "null or {\"rope_type\":\"default\"}: scaled rotary embeddings (YaRN, linear, dynamic) are not supported "
          "in this version",
          *rope);
    }
  }
  if (rope->contains("rope_theta")) config.rope_theta = file.number(key, (*rope)["rope_theta"]);
  if (rope->contains("partial_rotary_factor") && (*rope)["partial_rotary_factor"] != 1.0) {
    file.refuse(key, "partial_rotary_factor 1", *rope);
  }
}

DType read_stored_dtype(const ConfigFile& file) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const Json* value = file.find(key);
    if (value == nullptr) continue;
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
      if (*value == name_of(dtype) || *value == "torch." + std::string(name_of(dtype))) return dtype;
    }
    file.refuse(key, "\"float32\", \"bfloat16\" or \"float16\"", *value);
  }
  return DType::float32;
}

std::vector<std::int64_t> read_eos(const ConfigFile& file, std::int64_t vocab_size) {
  const Json* value = file.find("eos_token_id");
  if (value == nullptr) return {};
  std::vector<std::int64_t> ids;
  for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
    const bool in_vocabulary = id.is_number_integer() && id >= 0 && id < vocab_size;
    if (!in_vocabulary) file.refuse("eos_token_id", "a token id below vocab_size, or a list of them", *value);
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

void check_shape(const ConfigFile& file, const Qwen2Config& config) {
  const std::string name = file.file().string();
  if (config.num_layers > most_layers || config.query_size() > largest_size) {
    throw_invalid_input("{}: num_hidden_layers {} or num_attention_heads x head size {} is beyond any model", name,
                        config.num_layers, config.query_size());
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    throw_invalid_input("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", name,
                        config.num_heads, config.num_kv_heads);
  }
  if (file.find("head_dim") == nullptr && config.hidden_size % config.num_heads != 0) {
    throw_invalid_input("{}: hidden_size {} is not a multiple of num_attention_heads {} and there is no head_dim", name,
                        config.hidden_size, config.num_heads);
  }
  if (config.head_dim % 2 != 0) {
    throw_invalid_input("{}: the head size {} is odd; rotary embeddings need an even one", name, config.head_dim);
  }
  if (!(config.rms_norm_eps > 0)) throw_invalid_input("{}: rms_norm_eps {} is not above 0", name, config.rms_norm_eps);
  if (!(config.rope_theta > 0)) throw_invalid_input("{}: rope_theta {} is not above 0", name, config.rope_theta);
  if (!(config.initializer_range >= 0)) {
    throw_invalid_input("{}: initializer_range {} is negative", name, config.initializer_range);
  }
}

}  // namespace

std::int64_t Qwen2Config::parameter_count() const {
  return skrull::parameter_count(shape(), tie_word_embeddings);
}

double Qwen2Config::training_flops(const std::vector<std::int64_t>& lengths) const {
  const ModelShape sizes = shape();
  const auto layers = static_cast<double>(num_layers);
  const double per_token = layers * sizes.linear_flops_per_token() + sizes.head_flops_per_token();
  double forward = 0;
  for (const std::int64_t length : lengths) {
    forward += per_token * static_cast<double>(length) +
               layers * sizes.attention_flops_per_pair() * static_cast<double>(causal_area(length));
  }
  return 3 * forward;
}

Qwen2Config load_qwen2_config(const std::filesystem::path& folder) {
  const ConfigFile file(folder / "config.json");
  check_architecture(file);
  check_attention_kinds(file);
  Qwen2Config config;
  config.vocab_size = file.positive("vocab_size");
  config.hidden_size = file.positive("hidden_size");
  config.intermediate_size = file.positive("intermediate_size");
  config.num_layers = file.positive("num_hidden_layers");
  config.num_heads = file.positive("num_attention_heads");
  config.num_kv_heads = file.positive_or("num_key_value_heads", config.num_heads);
  config.head_dim = file.positive_or("head_dim", config.hidden_size / config.num_heads);
  // What transformers' Qwen2Config takes where a key is missing.
  config.max_position_embeddings = file.positive_or("max_position_embeddings", 32768);
  config.rms_norm_eps = file.number_or("rms_norm_eps", 1e-6);
  config.rope_theta = file.number_or("rope_theta", 10000.0);
  config.initializer_range = file.number_or("initializer_range", 0.02);
  config.tie_word_embeddings = file.boolean_or("tie_word_embeddings", false);
  check_rope(file, "rope_scaling", config);
  check_rope(file, "rope_parameters", config);
  config.stored_dtype = read_stored_dtype(file);
  config.eos_token_ids = read_eos(file, config.vocab_size);
  check_shape(file, config);
  return config;
}

}  // namespace skrull

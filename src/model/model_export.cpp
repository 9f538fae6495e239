// save_model_folder(): everything that makes a Hugging Face model folder complete.

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <unordered_map>

#include "convert.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "skrull/model/model_io.h"
#include "skrull/model/safetensors.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

constexpr const char* config_file = "config.json";
constexpr const char* generation_file = "generation_config.json";

/// Files that are copied; those with an eos_token need care when the end of a turn becomes the end of a text.
struct TokenizerFile {
  const char* name;
  bool names_eos_token;
};
constexpr TokenizerFile tokenizer_files[] = {
    {"tokenizer.json", false},     {"tokenizer_config.json", true}, {"special_tokens_map.json", true},
    {"vocab.json", false},         {"merges.txt", false},           {"added_tokens.json", false},
    {"chat_template.jinja", false}};

OrderedJson read_object(const fs::path& file) {
  OrderedJson value = read_ordered_json_file(file);
  if (!value.is_object()) throw_invalid_input("{}: expected a JSON object", file.string());
  return value;
}

/// In which element type each parameter of the table is stored: in `dtype`, or as `source` stores it.
std::vector<DType> stored_dtypes(const ParameterTable& table, const SafetensorsReader* source,
                                 const fs::path& source_folder, std::optional<DType> dtype) {
  if (dtype) return std::vector<DType>(table.parameters().size(), *dtype);
  require(source != nullptr, "{} holds no weights and no dtype is given", source_folder.string());
  std::vector<DType> dtypes;
  for (const ParameterSpec& parameter : table.parameters()) {
    const StoredTensor* tensor = source->find(parameter.name);
    require(tensor != nullptr, "{} does not hold {}", source_folder.string(), parameter.name);
    dtypes.push_back(tensor->dtype);
  }
  return dtypes;
}

/// The table's parameters in the order in which `source_folder` stores them.
std::vector<StoredParameter> stored_order(const ParameterTable& table, const fs::path& source_folder,
                                          std::optional<DType> dtype) {
  std::optional<SafetensorsReader> source;
  if (has_safetensors(source_folder)) source.emplace(source_folder);
  std::vector<StoredParameter> order;
  const std::vector<DType> dtypes = stored_dtypes(table, source ? &*source : nullptr, source_folder, dtype);
  for (std::size_t i = 0; i < dtypes.size(); ++i) order.push_back({&table.parameters()[i], dtypes[i]});
  if (!source) return order;
  std::unordered_map<std::string, std::size_t> place;
  for (const StoredTensor& tensor : source->tensors()) place.emplace(tensor.name, place.size());
  const auto place_of = [&](const StoredParameter& entry) {
    const auto found = place.find(entry.parameter->name);
    return found == place.end() ? place.size() : found->second;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const StoredParameter& a, const StoredParameter& b) { return place_of(a) < place_of(b); });
  return order;
}

/// As they are named and shaped in the files; without what they hold.
std::vector<TensorToWrite> tensors_of(const std::vector<StoredParameter>& order) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [parameter, dtype] : order) {
    std::vector<std::int64_t> shape = {parameter->cols};
    if (!parameter->is_vector) shape.insert(shape.begin(), parameter->rows);
    tensors.push_back({parameter->name, dtype, std::move(shape), {}});
  }
  return tensors;
}

/// The dtype of most of the bytes.
DType usual_dtype(const std::vector<StoredParameter>& order) {
  std::map<DType, std::int64_t> bytes;
  for (const auto& [parameter, dtype] : order) bytes[dtype] += parameter->elements() * size_of(dtype);
  return std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

float largest_finite(DType dtype) {
  if (dtype == DType::bfloat16) return 0x1.fep127F;
  return dtype == DType::float16 ? 65504.0F : std::numeric_limits<float>::max();
}

void check_finite(const ParameterSpec& parameter, std::int64_t first, std::span<const float> values, DType dtype) {
  const float largest = largest_finite(dtype);
  const auto bad = std::find_if_not(values.begin(), values.end(),
                                    [largest](float value) { return value >= -largest && value <= largest; });
  if (bad == values.end()) return;
  throw_run_failure(
      "{}: element {} is {}, no finite {} number; the model was not saved, earlier checkpoints stay. Lower the "
      "learning "
      "rate, or look at the model that training began with",
      parameter.name, first + (bad - values.begin()), *bad, name_of(dtype));
}

void write_weights(const fs::path& folder, const ModelWeights& weights, const BlockOnHost& block,
                   std::int64_t shard_bytes) {
  // A block may have to be gathered: ask for it once for all its tensors that follow each other.
  int held = -1;
  TensorView view;
  std::vector<TensorToWrite> tensors = tensors_of(weights.order);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].fill = [&, stored = weights.order[i]](std::int64_t first, std::span<char> target) {
      if (held != stored.parameter->block) {
        view = block(stored.parameter->block);
        held = stored.parameter->block;
      }
      const auto count = static_cast<std::size_t>(static_cast<std::int64_t>(target.size()) / size_of(stored.dtype));
      convert_for_storage(stored, first, {view.as<float>() + stored.parameter->offset + first, count}, target);
    };
  }
  write_safetensors(folder, tensors, shard_bytes);
}

/// Ids of `file`'s eos_token_id: a number, a list or nothing.
std::vector<std::int64_t> eos_ids(const fs::path& file, const OrderedJson& config) {
  const auto found = config.find("eos_token_id");
  if (found == config.end() || found->is_null()) return {};
  try {
    if (found->is_array()) return found->get<std::vector<std::int64_t>>();
    return {found->get<std::int64_t>()};
  } catch (const OrderedJson::type_error&) {
    throw_invalid_input("{}: key \"eos_token_id\": expected a token id or a list of them, got {}", file.string(),
                        found->dump());
  }
}

bool contains(const std::vector<std::int64_t>& ids, std::int64_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

OrderedJson exported_config(const fs::path& source_folder, DType dtype, const EndOfTurn& end_of_turn) {
  OrderedJson config = read_object(source_folder / config_file);
  // Newer transformers write "dtype".
  if (config.contains("dtype")) config["dtype"] = name_of(dtype);
  if (config.contains("torch_dtype") || !config.contains("dtype")) config["torch_dtype"] = name_of(dtype);
  if (end_of_turn.token_id >= 0 && !contains(eos_ids(source_folder / config_file, config), end_of_turn.token_id)) {
    config["eos_token_id"] = end_of_turn.token_id;
  }
  return config;
}

/// The source's, or one made of the token ids of its config.json.
OrderedJson generation_config(const fs::path& source_folder) {
  if (fs::exists(source_folder / generation_file)) return read_object(source_folder / generation_file);
  const OrderedJson config = read_object(source_folder / config_file);
  OrderedJson made = OrderedJson::object();
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config.contains(key) && !config[key].is_null()) made[key] = config[key];
  }
  return made;
}

void copy_bytes(const fs::path& from, const fs::path& to) {
  write_file_atomically(to, MappedFile(from).text());
}

void write_generation_config(const fs::path& folder, const fs::path& source_folder, const EndOfTurn& end_of_turn) {
  OrderedJson config = generation_config(source_folder);
  const std::vector<std::int64_t> ids = eos_ids(source_folder / generation_file, config);
  if (end_of_turn.token_id >= 0 && !contains(ids, end_of_turn.token_id)) {
    std::vector<std::int64_t> longer = {end_of_turn.token_id};
    longer.insert(longer.end(), ids.begin(), ids.end());
    config["eos_token_id"] = longer;
  } else if (fs::exists(source_folder / generation_file)) {
    return copy_bytes(source_folder / generation_file, folder / generation_file);
  }
  write_json_file(folder / generation_file, config);
}

/// An eos_token is a string, or an object whose "content" is it. False when it is `token` already.
bool set_eos_token(OrderedJson& values, const std::string& token) {
  OrderedJson& eos = values["eos_token"];
  OrderedJson& text = eos.is_object() ? eos["content"] : eos;
  if (text == token) return false;
  text = token;
  return true;
}

void copy_tokenizer(const fs::path& folder, const fs::path& source_folder, const EndOfTurn& end_of_turn) {
  for (const TokenizerFile& file : tokenizer_files) {
    const fs::path source = source_folder / file.name;
    if (!fs::exists(source)) continue;
    if (file.names_eos_token && end_of_turn.token_id >= 0) {
      OrderedJson values = read_object(source);
      if (set_eos_token(values, end_of_turn.token)) {
        write_json_file(folder / file.name, values);
        continue;
      }
    }
    copy_bytes(source, folder / file.name);
  }
}

}  // namespace

ModelWeights plan_model_weights(const ParameterTable& table, const fs::path& source_folder, std::optional<DType> dtype,
                                std::int64_t shard_bytes) {
  ModelWeights weights;
  weights.order = stored_order(table, source_folder, dtype);
  weights.layout = lay_out_safetensors(tensors_of(weights.order), shard_bytes);
  return weights;
}

void convert_for_storage(const StoredParameter& stored, std::int64_t first, std::span<const float> values,
                         std::span<char> target) {
  check_finite(*stored.parameter, first, values, stored.dtype);
  convert_from_float(stored.dtype, values, target);
}

void write_model_description(const fs::path& folder, const fs::path& source_folder, const ModelWeights& weights,
                             const EndOfTurn& end_of_turn, const fs::path& tokenizer_folder) {
  require(end_of_turn.token_id < 0 || !end_of_turn.token.empty(), "the text of token {} is missing",
          end_of_turn.token_id);
  copy_tokenizer(folder, tokenizer_folder.empty() ? source_folder : tokenizer_folder, end_of_turn);
  write_generation_config(folder, source_folder, end_of_turn);
  write_json_file(folder / config_file, exported_config(source_folder, usual_dtype(weights.order), end_of_turn));
  sync_folder(folder);
}

void save_model_folder(const fs::path& folder, const fs::path& source_folder, const ParameterTable& table,
                       const BlockOnHost& block, std::optional<DType> dtype, const EndOfTurn& end_of_turn,
                       const fs::path& tokenizer_folder, std::int64_t shard_bytes) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw_run_failure("{}: can't be made: {}", folder.string(), failure.message());
  const ModelWeights weights = plan_model_weights(table, source_folder, dtype, shard_bytes);
  write_weights(folder, weights, block, shard_bytes);
  write_model_description(folder, source_folder, weights, end_of_turn, tokenizer_folder);
}

bool is_model_file(std::string_view name) {
  const auto is_named = [name](const TokenizerFile& file) { return name == file.name; };
  return name == config_file || name == generation_file || is_weights_file(name) ||
         std::any_of(std::begin(tokenizer_files), std::end(tokenizer_files), is_named);
}

std::vector<std::int64_t> load_eos_token_ids(const fs::path& folder) {
  for (const char* name : {generation_file, config_file}) {
    if (!fs::exists(folder / name)) continue;
    std::vector<std::int64_t> ids = eos_ids(folder / name, read_object(folder / name));
    if (!ids.empty()) return ids;
  }
  return {};
}

}  // namespace skrull

#include "skrull/model/model_io.h"

#include <cstring>
#include <unordered_map>

#include "convert.h"
#include "skrull/core/error.h"
#include "skrull/core/rng.h"
#include "skrull/model/safetensors.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

constexpr const char* embedding_name = "model.embed_tokens.weight";
constexpr const char* head_name = "lm_head.weight";

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::span<float> elements_of(const TensorView& view) {
  return {view.as<float>(), static_cast<std::size_t>(view.elements())};
}

/// "a, b, c and 12 more"
std::string some_names(const std::vector<std::string>& names) {
  constexpr std::size_t most = 3;
  if (names.size() <= most) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + most, ", "), names.size() - most);
}

/// Old checkpoints store the rotary embedding's frequencies, which follow from config.json.
bool is_rotary_buffer(const std::string& name) {
  return name.find(".rotary_emb.") != std::string::npos;
}

bool is_tied(const ParameterTable& table) {
  return table.head_block() == table.embedding_block();
}

void check_names(const fs::path& folder, const ParameterTable& table, const SafetensorsReader& reader) {
  std::vector<std::string> missing;
  std::unordered_map<std::string, const ParameterSpec*> expected;
  for (const ParameterSpec& parameter : table.parameters()) {
    expected.emplace(parameter.name, &parameter);
    if (reader.find(parameter.name) == nullptr) missing.push_back(parameter.name);
  }
  if (!missing.empty()) {
    const bool head_only = missing.size() == 1 && missing.front() == head_name;
    throw_invalid_input("{}: missing from the weights: {}{}", folder.string(), some_names(missing),
                        head_only ? "; is tie_word_embeddings true missing in config.json?" : "");
  }
  std::vector<std::string> unknown;
  const StoredTensor* first_unknown = nullptr;
  for (const StoredTensor& tensor : reader.tensors()) {
    const bool tied_head = is_tied(table) && tensor.name == head_name;
    if (expected.contains(tensor.name) || tied_head || is_rotary_buffer(tensor.name)) continue;
    if (first_unknown == nullptr) first_unknown = &tensor;
    unknown.push_back(tensor.name);
  }
  if (first_unknown != nullptr) {
    throw_invalid_input("{}: tensors that the model of config.json does not have: {}", first_unknown->file.string(),
                        some_names(unknown));
  }
}

void check_form(const StoredTensor& tensor, const ParameterSpec& parameter) {
  const std::vector<std::int64_t> shape = parameter.is_vector
                                              ? std::vector<std::int64_t>{parameter.cols}
                                              : std::vector<std::int64_t>{parameter.rows, parameter.cols};
  if (tensor.shape != shape) {
    throw_invalid_input("{}: tensor {} has shape {}, config.json asks for {}", tensor.file.string(), tensor.name,
                        shape_text(tensor.shape), shape_text(shape));
  }
  if (!is_weight_dtype(tensor.dtype)) {
    throw_invalid_input("{}: tensor {} is {}; weights must be float32, bfloat16 or float16", tensor.file.string(),
                        tensor.name, name_of(tensor.dtype));
  }
}

void check_tied_head(const StoredTensor& head, const ParameterSpec& embedding, const TensorView& values) {
  ParameterSpec form = embedding;
  form.name = head_name;
  check_form(head, form);
  std::vector<float> row(static_cast<std::size_t>(embedding.cols));
  const auto row_bytes = static_cast<std::size_t>(embedding.cols * size_of(head.dtype));
  for (std::int64_t i = 0; i < embedding.rows; ++i) {
    convert_to_float(head.dtype, head.bytes.subspan(static_cast<std::size_t>(i) * row_bytes, row_bytes), row);
    const std::span<float> expected = elements_of(values.slice_rows(i, 1));
    if (std::memcmp(row.data(), expected.data(), row.size() * sizeof(float)) != 0) {
      throw_invalid_input(
          "{}: {} differs from {} in row {}, though config.json ties them; with "
          "\"tie_word_embeddings\": false both are trained",
          head.file.string(), head_name, embedding_name, i);
    }
  }
}

}  // namespace

void load_parameters(const fs::path& folder, const ParameterTable& table, const BlockOnHost& block) {
  const SafetensorsReader reader(folder);
  check_names(folder, table, reader);
  for (const ParameterSpec& parameter : table.parameters()) check_form(*reader.find(parameter.name), parameter);
  for (const ParameterSpec& parameter : table.parameters()) {
    const StoredTensor& tensor = *reader.find(parameter.name);
    const TensorView target = slice_parameter(block(parameter.block), parameter);
    convert_to_float(tensor.dtype, tensor.bytes, elements_of(target));
    if (const StoredTensor* head = reader.find(head_name);
        head != nullptr && is_tied(table) && parameter.name == embedding_name) {
      check_tied_head(*head, parameter, target);
    }
  }
}

void initialize_parameters(std::uint64_t seed, double initializer_range, const ParameterTable& table,
                           const BlockOnHost& block) {
  for (const ParameterSpec& parameter : table.parameters()) {
    const std::span<float> values = elements_of(slice_parameter(block(parameter.block), parameter));
    if (parameter.init != ParameterInit::normal) {
      std::fill(values.begin(), values.end(), parameter.init == ParameterInit::ones ? 1.0F : 0.0F);
      continue;
    }
    const std::uint64_t key = random_key(seed, parameter.name);
    const auto count = static_cast<std::int64_t>(values.size());
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      values[static_cast<std::size_t>(i)] =
          static_cast<float>(initializer_range * random_normal(key, static_cast<std::uint64_t>(i)));
    }
  }
}

}  // namespace skrull

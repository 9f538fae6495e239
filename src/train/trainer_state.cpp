#include "skrull/train/trainer_state.h"

#include <cmath>
#include <limits>

#include "skrull/core/error.h"
#include "skrull/core/json.h"

namespace skrull {
namespace {

constexpr const char* format_name = "skrull-trainer-state/1";

template <class T>
struct Field {
  const char* name;
  T TrainerState::*member;
};
constexpr Field<std::int64_t> counts[] = {
    {"step", &TrainerState::step},
    {"updates", &TrainerState::updates},
    {"total_steps", &TrainerState::total_steps},
    {"steps_per_epoch", &TrainerState::steps_per_epoch},
    {"global_batch_size", &TrainerState::global_batch_size},
    {"skipped_steps", &TrainerState::skipped_steps},
    {"skipped_in_a_row", &TrainerState::skipped_in_a_row},
    {"tokens", &TrainerState::tokens},
};
constexpr Field<double> losses[] = {{"loss", &TrainerState::loss}, {"eval_loss", &TrainerState::eval_loss}};
constexpr Field<bool> flags[] = {{"evaluation_due", &TrainerState::evaluation_due},
                                 {"finished", &TrainerState::finished}};
constexpr Field<int> rank_counts[] = {{"ranks", &TrainerState::ranks},
                                      {"context_parallel_size", &TrainerState::context_parallel}};

/// What must be equal of two models beside their sizes.
template <class T>
struct ModelValue {
  const char* name;
  T Qwen2Config::*member;
};
constexpr ModelValue<double> model_numbers[] = {{"rms_norm_eps", &Qwen2Config::rms_norm_eps},
                                                {"rope_theta", &Qwen2Config::rope_theta}};
constexpr ModelValue<bool> model_flags[] = {{"tie_word_embeddings", &Qwen2Config::tie_word_embeddings}};

/// JSON has no NaN: null stands for it.
OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson model_to_json(const Qwen2Config& model) {
  OrderedJson json;
  const ModelShape shape = model.shape();
  for (const NamedModelSize& size : model_sizes) json[size.name] = shape.*size.member;
  for (const auto& value : model_numbers) json[value.name] = model.*value.member;
  for (const auto& value : model_flags) json[value.name] = model.*value.member;
  return json;
}

Qwen2Config model_from_json(const OrderedJson& json) {
  ModelShape shape;
  for (const NamedModelSize& size : model_sizes) shape.*size.member = json.at(size.name).get<std::int64_t>();
  Qwen2Config model;
  model.hidden_size = shape.hidden_size;
  model.num_layers = shape.num_layers;
  model.num_heads = shape.num_attention_heads;
  model.num_kv_heads = shape.num_key_value_heads;
  model.head_dim = shape.head_dim;
  model.intermediate_size = shape.intermediate_size;
  model.vocab_size = shape.vocab_size;
  for (const auto& value : model_numbers) model.*value.member = json.at(value.name).get<double>();
  for (const auto& value : model_flags) model.*value.member = json.at(value.name).get<bool>();
  return model;
}

TrainerState state_from_json(const OrderedJson& json) {
  TrainerState state;
  for (const auto& field : counts) state.*field.member = json.at(field.name).get<std::int64_t>();
  for (const auto& field : losses) {
    const OrderedJson& value = json.at(field.name);
    state.*field.member = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  }
  for (const auto& field : flags) state.*field.member = json.at(field.name).get<bool>();
  for (const auto& field : rank_counts) state.*field.member = json.at(field.name).get<int>();
  state.data_fingerprint = json.at("data_fingerprint").get<std::string>();
  state.model = model_from_json(json.at("model"));
  state.config = json.at("config").dump();
  return state;
}

}  // namespace

void write_trainer_state(const std::filesystem::path& file, const TrainerState& state) {
  OrderedJson json = {{"format", format_name}};
  for (const auto& field : counts) json[field.name] = state.*field.member;
  // For people and other tools; they follow from the counts above.
  json["epoch"] = static_cast<double>(state.step) / static_cast<double>(state.steps_per_epoch);
  json["steps_into_epoch"] = state.step % state.steps_per_epoch;
  for (const auto& field : losses) json[field.name] = number(state.*field.member);
  for (const auto& field : flags) json[field.name] = state.*field.member;
  for (const auto& field : rank_counts) json[field.name] = state.*field.member;
  json["data_fingerprint"] = state.data_fingerprint;
  json["model"] = model_to_json(state.model);
  json["config"] = OrderedJson::parse(state.config);
  write_json_file(file, json);
}

TrainerState read_trainer_state(const std::filesystem::path& file) {
  const OrderedJson json = read_ordered_json_file(file);
  if (!json.is_object() || json.value("format", "") != format_name) {
    throw_invalid_input("{}: expected the format {}", file.string(), format_name);
  }
  try {
    return state_from_json(json);
  } catch (const OrderedJson::exception& error) {
    throw_invalid_input("{}: {}", file.string(), error.what());
  }
}

void check_same_model(const Qwen2Config& saved, const Qwen2Config& model, const std::string& origin) {
  const OrderedJson before = model_to_json(saved);
  const OrderedJson now = model_to_json(model);
  for (const auto& [name, value] : before.items()) {
    if (value == now.at(name)) continue;
    throw_invalid_input(
        "{}: it was saved from a model with {} {}, but the model of model_name_or_path has {}; give that model, or "
        "start anew in another output_dir",
        origin, name, value.dump(), now.at(name).dump());
  }
}

}  // namespace skrull

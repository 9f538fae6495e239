#pragma once
// A small model folder with a tokenizer, as a base model: it stops at the end of a text, not of a turn.

#include <filesystem>

#include "skrull/core/json.h"
#include "training_fixture.h"

namespace skrull::test {

inline constexpr int chat_end_of_text = 924;
inline constexpr int chat_im_start = 925;
inline constexpr int chat_im_end = 926;

/// The shipped quickstart tokenizer with one small layer to be drawn at random (init: random).
inline void write_base_chat_model(const std::filesystem::path& folder) {
  const std::filesystem::path source = std::filesystem::path(SKRULL_SOURCE_DIR) / "configs" / "quickstart" / "model";
  std::filesystem::create_directories(folder);
  std::filesystem::copy(source / "tokenizer.json", folder / "tokenizer.json");
  OrderedJson tokenizer = read_ordered_json_file(source / "tokenizer_config.json");
  tokenizer["eos_token"] = "<|endoftext|>";
  write_json_file(folder / "tokenizer_config.json", tokenizer);
  OrderedJson config = read_ordered_json_file(source / "config.json");
  config["hidden_size"] = 32;
  config["intermediate_size"] = 48;
  config["num_hidden_layers"] = 1;
  config["eos_token_id"] = chat_end_of_text;
  write_json_file(folder / "config.json", config);
  write_json_file(folder / "generation_config.json", {{"eos_token_id", chat_end_of_text}, {"do_sample", false}});
}

}  // namespace skrull::test

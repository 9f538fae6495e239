#pragma once
// A complete small tokenizer made by the tests: 256 bytes, a few merges, the control tokens of ChatML.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "byte_alphabet.h"
#include "pre_tokenizer.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"

namespace skrull::test {

/// Written in the byte-level alphabet: U+0120 is a space, U+010A a newline.
inline const std::vector<std::pair<std::string, std::string>>& tiny_merges() {
  static const std::vector<std::pair<std::string, std::string>> merges{
      {"h", "e"},      {"l", "l"},           {"he", "ll"}, {"hell", "o"},
      {"\u0120", "w"}, {"\u010A", "\u010A"}, {"o", "r"},   {"\u0120", "hello"}};
  return merges;
}

inline constexpr int tiny_first_merged = 256;
inline constexpr int tiny_im_start = 300;
inline constexpr int tiny_im_end = 301;
inline constexpr int tiny_tool_call = 302;
inline constexpr int tiny_tool_call_end = 303;
inline constexpr int tiny_end_of_text = 310;

/// Ids: a byte is its own id, a merge 256 + its rank.
inline Json tiny_vocab() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[to_byte_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  int id = tiny_first_merged;
  for (const auto& [left, right] : tiny_merges()) vocab[left + right] = id++;
  return vocab;
}

inline std::vector<std::pair<std::string, int>> tiny_added_tokens() {
  return {{"<|im_start|>", tiny_im_start},
          {"<|im_end|>", tiny_im_end},
          {"<tool_call>", tiny_tool_call},
          {"</tool_call>", tiny_tool_call_end},
          {"<|endoftext|>", tiny_end_of_text}};
}

inline Json tiny_tokenizer_json() {
  Json merges = Json::array();
  for (const auto& [left, right] : tiny_merges()) merges.push_back(left + " " + right);
  Json added = Json::array();
  for (const auto& [content, id] : tiny_added_tokens()) {
    added.push_back({{"id", id}, {"content", content}, {"special", id < tiny_tool_call}, {"normalized", false}});
  }
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", PreTokenizer::qwen_pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"added_tokens", added},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
          {"post_processor", byte_level},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", tiny_vocab()}, {"merges", merges}}}};
}

inline Json tiny_tokenizer_config() {
  return {{"eos_token", "<|im_end|>"}, {"pad_token", {{"content", "<|endoftext|>"}}}};
}

inline void write_tiny_tokenizer(const std::filesystem::path& folder) {
  write_json_file(folder / "tokenizer.json", tiny_tokenizer_json());
  write_json_file(folder / "tokenizer_config.json", tiny_tokenizer_config());
}

}  // namespace skrull::test

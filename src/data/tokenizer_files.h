#pragma once
// Reads the files of a Hugging Face tokenizer into the parts that a Tokenizer is made of.

#include <filesystem>
#include <string>
#include <vector>

#include "bpe.h"
#include "skrull/data/tokenizer.h"

namespace skrull {

struct TokenizerDefinition {
  BpeModel model;
  std::string split_pattern;
  bool nfc = false;
  std::vector<AddedToken> added_tokens;
  std::string eos_token;  ///< "" when not named
  std::string pad_token;
  std::vector<std::filesystem::path> files;
};

/// See Tokenizer::load.
TokenizerDefinition read_tokenizer_folder(const std::filesystem::path& folder);

/// See Tokenizer::is_in.
bool has_tokenizer_files(const std::filesystem::path& folder);

}  // namespace skrull

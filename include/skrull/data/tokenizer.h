#pragma once
// Byte-level BPE tokenizers of Hugging Face model folders (Qwen2, Qwen2.5, Qwen3 and others of their kind).

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skrull {

/// What encode() does with text that spells an added token such as "<|im_end|>".
enum class AddedTokens {
  recognize,  ///< it becomes the token's id
  plain       ///< it is text like any other and never becomes a control token
};

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;  ///< looked for in the normalized text instead of the text as given
};

/// Immutable once loaded: all functions may be called from several threads at once. Copies share their data.
class Tokenizer {
 public:
  /// Whether the folder has tokenizer.json, or vocab.json and merges.txt. Models of `input_ids` rows may have neither.
  static bool is_in(const std::filesystem::path& folder);

  /// Reads tokenizer.json, else vocab.json and merges.txt (split by Qwen's pattern, NFC); further added tokens and the
  /// names of eos and pad come from tokenizer_config.json (or added_tokens.json) when there. Truncation and padding set
  /// in tokenizer.json are ignored. Throws InvalidInput with the file and the JSON path of what is missing, malformed
  /// or not supported.
  static Tokenizer load(const std::filesystem::path& folder);

  /// Ids of `text` (UTF-8) in NFC. Nothing is prepended or appended. Throws InvalidInput with the offset of invalid
  /// UTF-8.
  std::vector<std::int32_t> encode(std::string_view text, AddedTokens added_tokens) const;
  /// encode(), appending to `ids`.
  void append(std::string_view text, AddedTokens added_tokens, std::vector<std::int32_t>& ids) const;

  /// The tokens' bytes one after the other: encode()'s text in NFC. Ids without a token (unused rows of a model's
  /// vocabulary) give nothing. Some sequences of ids aren't valid UTF-8.
  std::string decode(std::span<const std::int32_t> ids) const;
  /// The bytes of one token, "" for an id without one; valid as long as the tokenizer.
  std::string_view token_bytes(std::int32_t id) const;

  /// One more than the largest id of any token; a model's vocab_size is often larger (padding).
  std::int64_t vocab_size() const;
  /// In ascending order of ids.
  const std::vector<AddedToken>& added_tokens() const;
  /// The id of the added token, or else of the plain token, with exactly this text.
  std::optional<std::int32_t> find_token(std::string_view text) const;
  /// As tokenizer_config.json names them (eos_token, pad_token).
  std::optional<std::int32_t> eos_id() const;
  std::optional<std::int32_t> pad_id() const;

  /// The files that were read, for cache keys and for copying into an exported model.
  const std::vector<std::filesystem::path>& files() const;

 private:
  struct Data;
  explicit Tokenizer(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

  std::shared_ptr<const Data> data_;
};

/// Decodes ids as they are generated, without ever cutting a character: the bytes of an incomplete one wait for the
/// next id.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  /// The text that is complete after this id, possibly "".
  std::string push(std::int32_t id);
  /// What is left at the end, an incomplete character.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  std::string pending_;
};

}  // namespace skrull

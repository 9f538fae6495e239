#pragma once
// From one row to one training sample: token ids and labels shifted once, on the whole sequence.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skrull/config/choices.h"
#include "skrull/data/rows.h"

namespace skrull {

/// Ids and labels as rows and chat templates give them: labels[t] belongs to ids[t] itself (usually equal to it), or is
/// ignored_label. Not shifted.
struct UnshiftedSample {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
  std::vector<std::string> ignored_fields;  ///< of the row, met on the way, that mean nothing here
};

/// What the model is trained on: labels[t] is the token that follows ids[t], or ignored_label.
struct TokenizedSample {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
  std::int64_t supervised = 0;  ///< labels that are not ignored
};

/// How text becomes ids: a tokenizer with its chat template. Used by several threads at once.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  /// `row` holds "messages" and maybe "tools". Throws InvalidInput for a malformed conversation.
  virtual UnshiftedSample encode_conversation(const nlohmann::ordered_json& row) const = 0;
  /// Plain text to train on as a whole, ended by the tokenizer's end-of-text token. Control tokens spelled in it stay
  /// text.
  virtual UnshiftedSample encode_document(std::string_view text) const = 0;
  /// The bytes of the tokens; parts of a character where `ids` cut it.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Differs whenever some text could become other ids; for cache keys.
  virtual std::string fingerprint() const = 0;
};

struct SampleOptions {
  std::int64_t cutoff_len = 0;  ///< most tokens of a sample, at least 1
  OverlengthPolicy overlength = OverlengthPolicy::drop;
  std::int64_t vocab_size = 0;  ///< of the model: ids and labels lie below it
};

/// What became of a row.
enum class RowOutcome {
  kept,
  truncated,   ///< kept, cut to cutoff_len
  overlength,  ///< dropped: longer than cutoff_len
  untrained    ///< dropped: no supervised token, maybe after truncation
};

struct RowResult {
  RowOutcome outcome = RowOutcome::kept;
  std::int64_t original_length = 0;  ///< tokens before truncation
  TokenizedSample sample;            ///< empty when dropped
  std::vector<std::string> ignored;  ///< keys of the row that mean nothing here
};

/// Shifts the labels once: the first label goes (nothing predicts it), the last position has no next token.
TokenizedSample shift_labels(UnshiftedSample unshifted);

/// Builds samples by one set of options. Immutable: used by several threads at once.
class SampleBuilder {
 public:
  /// `encoder` may be null for rows of input_ids alone; it outlives the builder.
  SampleBuilder(const TextEncoder* encoder, const SampleOptions& options);

  /// Throws InvalidInput "<file>:<line>: ..." for a bad row: not UTF-8, not JSON, of no known kind, a malformed
  /// conversation, ids outside the vocabulary, too long under OverlengthPolicy::error. Content is never shown.
  RowResult build(const Row& row, const std::string& file) const;

 private:
  /// Truncates, shifts and decides the outcome.
  void finish(UnshiftedSample unshifted, RowResult& result) const;

  const TextEncoder* encoder_;
  SampleOptions options_;
};

}  // namespace skrull

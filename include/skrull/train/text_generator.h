#pragma once
// A model folder ready to continue text: parameters, KV cache, tokenizer and chat template.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "skrull/comm/mpi_session.h"
#include "skrull/config/train_config.h"
#include "skrull/data/chat_template.h"
#include "skrull/data/tokenizer.h"
#include "skrull/train/generate.h"
#include "skrull/train/model_state.h"
#include "skrull/train/rank_session.h"

namespace skrull {

struct GeneratedText {
  std::vector<std::int32_t> ids;  ///< new tokens, the ending one included
  std::string text;               ///< without the ending token; empty when the folder has no tokenizer
};

/// A conversation to be answered. When it ends with an assistant turn, that turn is the expected answer and not shown
/// to the model.
struct Question {
  Conversation conversation;
  std::optional<std::string> expected;
};

/// Reads conversations from a JSON file (an array of messages, or an object with "messages") or JSON Lines of such
/// objects. Throws InvalidInput with file, line and field.
std::vector<Question> read_questions(const std::filesystem::path& file);

class TextGenerator {
 public:
  /// Loads `config.model_name_or_path` for inference. `session` must be a single rank's.
  TextGenerator(const TrainConfig& config, const MpiSession& session);

  /// Continues these ids. eos tokens are the model's unless `options` names some.
  GeneratedText generate(const std::vector<std::int32_t>& prompt, GenerateOptions options,
                         const TokenCallback& on_token = {});
  /// The tokenizer; throws InvalidInput when the folder has none.
  const Tokenizer& tokenizer() const;
  /// Ids of plain text. Throws InvalidInput when the folder has no tokenizer.
  std::vector<std::int32_t> encode_prompt(const std::string& text) const;
  /// Ids of a conversation up to the header of the assistant's next turn.
  std::vector<std::int32_t> encode_conversation(const Conversation& conversation);

 private:
  std::filesystem::path folder_;
  DType compute_dtype_;
  RankSession rank_;
  ModelState state_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<KvCache> cache_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;  ///< loaded when the first conversation comes
  std::vector<std::int64_t> eos_token_ids_;
};

}  // namespace skrull

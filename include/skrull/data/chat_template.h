#pragma once
// Qwen2.5's chat template: conversations as text, and as token ids with labels.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "skrull/data/conversation.h"
#include "skrull/data/micro_batch.h"
#include "skrull/data/tokenizer.h"

namespace skrull {

struct RenderedConversation {
  std::string text;
  std::vector<std::int32_t> ids;
  /// As many as ids, not shifted: the id itself where the token is trained, else ignored_label.
  std::vector<std::int32_t> labels;
};

/// Immutable once loaded: all functions may be called from several threads at once. Copies share their data.
class ChatTemplate {
 public:
  /// The template of a model folder: chat_template.jinja, else chat_template in tokenizer_config.json. Only Qwen2.5's
  /// template is known, with whatever default system text it holds; a folder without any template gets it with the
  /// default system text of the base models, "You are a helpful assistant.". Throws InvalidInput for another template
  /// and for a tokenizer without the added tokens <|im_start|> and <|im_end|>.
  static ChatTemplate load(const std::filesystem::path& folder, const Tokenizer& tokenizer);

  /// What stands in the system turn of a conversation that begins with another role.
  const std::string& default_system() const;
  /// The id of <|im_end|>, which ends every turn.
  std::int32_t end_of_turn() const;

  /// The text, byte for byte as Jinja prints it. With `add_generation_prompt` it ends with the header of an assistant
  /// turn.
  std::string render(const Conversation& conversation, bool add_generation_prompt) const;

  /// Text, ids and labels. Control tokens come from the template alone: content that spells "<|im_end|>" stays text
  /// (`content_tokens` recognize lets it through, as tokenizing the whole text would). The text between two control
  /// tokens is tokenized as one, so for content without the text of added tokens the ids are those of the whole text.
  /// Trained are each assistant turn's content, its tool calls and its <|im_end|>; not the header "assistant\n", not
  /// the newline after <|im_end|>, and nothing of a message that isn't `supervised`. A token in which the header's
  /// newline and the beginning of the content grew together (content that begins with a newline) is trained.
  RenderedConversation tokenize(const Conversation& conversation, bool add_generation_prompt,
                                AddedTokens content_tokens = AddedTokens::plain) const;

 private:
  struct Data;
  explicit ChatTemplate(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

  std::shared_ptr<const Data> data_;
};

}  // namespace skrull

#include "skrull/data/chat_encoder.h"

#include <optional>
#include <utility>

#include "skrull/core/checksum.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/data/chat_template.h"
#include "skrull/data/tokenizer.h"

namespace skrull {
namespace {

/// Documents end with this token, or with the tokenizer's eos token where it is not there.
constexpr std::string_view end_of_text_token = "<|endoftext|>";

/// Changes whenever the ids of some text change although no file did.
constexpr std::string_view encoder_version = "chat-encoder/1";

class ChatEncoder final : public TextEncoder {
 public:
  explicit ChatEncoder(const std::filesystem::path& folder) : tokenizer_(Tokenizer::load(folder)) {
    try {
      template_ = ChatTemplate::load(folder, tokenizer_);
    } catch (const InvalidInput& error) {
      template_problem_ = error.what();
    }
    end_of_text_ = tokenizer_.find_token(end_of_text_token);
    if (!end_of_text_) end_of_text_ = tokenizer_.eos_id();
    Checksum checksum;
    checksum.add_field(encoder_version);
    for (const std::filesystem::path& file : tokenizer_.files()) checksum.add_file(file);
    checksum.add_field(template_ ? template_->default_system() : template_problem_);
    fingerprint_ = checksum.hex();
  }

  UnshiftedSample encode_conversation(const OrderedJson& row) const override {
    if (!template_) throw InvalidInput(template_problem_);
    const Conversation conversation = parse_conversation(row);
    RenderedConversation rendered = template_->tokenize(conversation, false);
    return {std::move(rendered.ids), std::move(rendered.labels), conversation.ignored_fields};
  }

  UnshiftedSample encode_document(std::string_view text) const override {
    UnshiftedSample sample;
    sample.ids = tokenizer_.encode(text, AddedTokens::plain);
    if (end_of_text_) sample.ids.push_back(*end_of_text_);
    sample.labels = sample.ids;
    return sample;
  }

  std::string decode(std::span<const std::int32_t> ids) const override { return tokenizer_.decode(ids); }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> template_;
  std::string template_problem_;
  std::optional<std::int32_t> end_of_text_;
  std::string fingerprint_;
};

}  // namespace

std::unique_ptr<TextEncoder> load_chat_encoder(const std::filesystem::path& folder) {
  if (!Tokenizer::is_in(folder)) return nullptr;
  return std::make_unique<ChatEncoder>(folder);
}

}  // namespace skrull

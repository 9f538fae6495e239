#include "skrull/train/text_generator.h"

#include <algorithm>

#include "skrull/core/json.h"
#include "skrull/data/rows.h"

namespace skrull {
namespace {

constexpr std::int64_t prefill_tokens = 1024;

Question make_question(const OrderedJson& row) {
  Question question;
  question.conversation = parse_conversation(row.is_array() ? OrderedJson{{"messages", row}} : row);
  auto& messages = question.conversation.messages;
  if (messages.back().role == Role::assistant) {
    question.expected = messages.back().content;
    messages.pop_back();
  }
  return question;
}

}  // namespace

std::vector<Question> read_questions(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::string name = file.string();
  // One JSON value (an array of messages, or one object over several lines), else a row per line.
  if (OrderedJson whole = OrderedJson::parse(mapped.text(), nullptr, false); !whole.is_discarded()) {
    const bool of_messages = whole.is_array() && !whole.empty() && whole.front().contains("role");
    if (whole.is_object() || of_messages) {
      try {
        return {make_question(whole)};
      } catch (const InvalidInput& error) {
        throw_invalid_input("{}: {}", name, error.what());
      }
    }
  }
  std::vector<Question> questions;
  RowReader reader(name, mapped.text());
  Row row;
  while (reader.next(row)) {
    try {
      questions.push_back(make_question(parse_row(row.text)));
    } catch (const InvalidInput& error) {
      throw_invalid_input("{}:{}: {}", name, row.line, error.what());
    }
  }
  if (questions.empty()) throw_invalid_input("{}: holds no conversation; expected rows with \"messages\"", name);
  return questions;
}

TextGenerator::TextGenerator(const TrainConfig& config, const MpiSession& session)
    : folder_(config.model_name_or_path),
      compute_dtype_(config.compute_dtype),
      rank_(config, session),
      state_(config, rank_, false),
      model_(std::make_unique<Transformer>(state_.config(), transformer_options(config, prefill_tokens, false),
                                           rank_.device())),
      eos_token_ids_(load_eos_token_ids(folder_)) {
  if (Tokenizer::is_in(folder_)) tokenizer_ = Tokenizer::load(folder_);
}

const Tokenizer& TextGenerator::tokenizer() const {
  if (!tokenizer_) {
    throw_invalid_input(
        "{}: has no tokenizer (tokenizer.json, or vocab.json and merges.txt); give the prompt as --input-ids",
        folder_.string());
  }
  return *tokenizer_;
}

std::vector<std::int32_t> TextGenerator::encode_prompt(const std::string& text) const {
  return tokenizer().encode(text, AddedTokens::recognize);
}

std::vector<std::int32_t> TextGenerator::encode_conversation(const Conversation& conversation) {
  if (!chat_template_) chat_template_ = ChatTemplate::load(folder_, tokenizer());
  return chat_template_->tokenize(conversation, true).ids;
}

GeneratedText TextGenerator::generate(const std::vector<std::int32_t>& prompt, GenerateOptions options,
                                      const TokenCallback& on_token) {
  const std::int64_t needed = static_cast<std::int64_t>(prompt.size()) + options.max_new_tokens;
  if (!cache_ || cache_->capacity() < needed) {
    cache_.reset();
    cache_ = std::make_unique<KvCache>(state_.config(), compute_dtype_, needed, rank_.device());
  }
  if (options.eos_token_ids.empty()) options.eos_token_ids = eos_token_ids_;
  GeneratedText result;
  result.ids = skrull::generate(*model_, state_.parameters(), *cache_, rank_.device(), prompt, options, on_token);
  if (!tokenizer_) return result;
  std::vector<std::int32_t> shown = result.ids;
  const auto& ends = options.eos_token_ids;
  if (!shown.empty() && std::find(ends.begin(), ends.end(), shown.back()) != ends.end()) shown.pop_back();
  result.text = tokenizer_->decode(shown);
  return result;
}

}  // namespace skrull

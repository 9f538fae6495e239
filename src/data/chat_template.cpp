#include "skrull/data/chat_template.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "added_token_matcher.h"
#include "chat_template_source.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr std::string_view turn_start = "<|im_start|>";
constexpr std::string_view turn_end = "<|im_end|>";

/// A stretch of the rendered text.
struct Piece {
  std::string_view text;
  bool markup;      ///< from the template, where control tokens are; otherwise content
  bool supervised;  ///< to be learned
};

/// The rendered text in pieces that view into the conversation and this object's arguments.
class PieceWriter {
 public:
  PieceWriter(const Conversation& conversation, std::string_view default_system)
      : conversation_(conversation), default_system_(default_system) {}

  std::vector<Piece> write(bool add_generation_prompt) {
    write_system();
    for (std::size_t i = 0; i < conversation_.messages.size(); ++i) write_message(i);
    if (add_generation_prompt) markup("<|im_start|>assistant\n");
    return std::move(pieces_);
  }

 private:
  void markup(std::string_view text) { pieces_.push_back({text, true, supervised_}); }
  void content(std::string_view text) { pieces_.push_back({text, false, supervised_}); }

  void write_system() {
    const std::vector<Message>& messages = conversation_.messages;
    markup("<|im_start|>system\n");
    if (!messages.empty() && messages[0].role == Role::system) {
      content(messages[0].content);
    } else {
      markup(default_system_);
    }
    if (!conversation_.tools.empty()) {
      markup(
          "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
          "function signatures within <tools></tools> XML tags:\n<tools>");
      for (const std::string& tool : conversation_.tools) {
        markup("\n");
        content(tool);
      }
      markup(
          "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
          "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
          "<args-json-object>}\n</tool_call>");
    }
    markup("<|im_end|>\n");
  }

  void write_message(std::size_t index) {
    const Message& message = conversation_.messages[index];
    switch (message.role) {
      case Role::system:
        if (index > 0) write_turn("<|im_start|>system\n", message.content);
        break;
      case Role::user:
        write_turn("<|im_start|>user\n", message.content);
        break;
      case Role::assistant:
        write_assistant(message);
        break;
      case Role::tool:
        write_tool_response(index);
        break;
      case Role::unknown:
        break;
    }
  }

  void write_turn(std::string_view header, std::string_view text) {
    markup(header);
    content(text);
    markup("<|im_end|>\n");
  }

  void write_assistant(const Message& message) {
    markup("<|im_start|>assistant\n");
    supervised_ = message.supervised;
    content(message.content);
    for (std::size_t k = 0; k < message.tool_calls.size(); ++k) {
      if (k > 0 || !message.content.empty()) markup("\n");
      markup("<tool_call>\n{\"name\": \"");
      content(message.tool_calls[k].name);
      markup("\", \"arguments\": ");
      content(message.tool_calls[k].arguments);
      markup("}\n</tool_call>");
    }
    markup(turn_end);
    supervised_ = false;
    markup("\n");
  }

  void write_tool_response(std::size_t index) {
    const std::vector<Message>& messages = conversation_.messages;
    if (index == 0 || messages[index - 1].role != Role::tool) markup("<|im_start|>user");
    markup("\n<tool_response>\n");
    content(messages[index].content);
    markup("\n</tool_response>");
    if (index + 1 == messages.size() || messages[index + 1].role != Role::tool) markup("<|im_end|>\n");
  }

  const Conversation& conversation_;
  std::string_view default_system_;
  bool supervised_ = false;
  std::vector<Piece> pieces_;
};

struct Span {
  std::size_t begin;
  std::size_t end;
};

/// A token that the text spells at `begin`.
struct ControlToken {
  std::size_t begin;
  const AddedToken* token;
};

std::string concatenate(const std::vector<Piece>& pieces) {
  std::size_t size = 0;
  for (const Piece& piece : pieces) size += piece.text.size();
  std::string text;
  text.reserve(size);
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

/// Supervised stretches of the concatenated pieces, joined where they touch.
std::vector<Span> supervised_spans(const std::vector<Piece>& pieces) {
  std::vector<Span> spans;
  std::size_t offset = 0;
  for (const Piece& piece : pieces) {
    const Span span{offset, offset + piece.text.size()};
    offset = span.end;
    if (!piece.supervised || span.begin == span.end) continue;
    if (!spans.empty() && spans.back().end == span.begin) {
      spans.back().end = span.end;
    } else {
      spans.push_back(span);
    }
  }
  return spans;
}

/// Appends ids and labels of a rendered text, from its beginning to its end.
class LabelledEncoder {
 public:
  LabelledEncoder(const Tokenizer& tokenizer, std::vector<Span> supervised, RenderedConversation& output)
      : tokenizer_(tokenizer), supervised_(std::move(supervised)), output_(output) {}

  void append_plain(Span stretch) {
    if (stretch.begin == stretch.end) return;
    const std::size_t first = output_.ids.size();
    const std::string_view text = std::string_view(output_.text).substr(stretch.begin, stretch.end - stretch.begin);
    tokenizer_.append(text, AddedTokens::plain, output_.ids);
    const Span trained = find_supervised(stretch);
    // Sizes of tokens add up in the normalized text. What comes before the trained part is markup, which NFC leaves as
    // it is; after it there is nothing up to the next control token.
    std::size_t begin = stretch.begin;
    for (std::size_t i = first; i < output_.ids.size(); ++i) {
      const std::int32_t id = output_.ids[i];
      const std::size_t end = begin + tokenizer_.token_bytes(id).size();
      const bool before_end = trained.end == stretch.end || begin < trained.end;
      output_.labels.push_back(end > trained.begin && before_end ? id : ignored_label);
      begin = end;
    }
  }

  void append_control(const ControlToken& control) {
    const Span trained = find_supervised({control.begin, control.begin + control.token->content.size()});
    output_.ids.push_back(control.token->id);
    output_.labels.push_back(trained.begin < trained.end ? control.token->id : ignored_label);
  }

 private:
  /// The part of `stretch` that is supervised; empty and at its end when there is none. Calls go forward in the text.
  Span find_supervised(Span stretch) {
    while (next_ < supervised_.size() && supervised_[next_].end <= stretch.begin) ++next_;
    if (next_ == supervised_.size() || supervised_[next_].begin >= stretch.end) return {stretch.end, stretch.end};
    return {std::max(supervised_[next_].begin, stretch.begin), std::min(supervised_[next_].end, stretch.end)};
  }

  const Tokenizer& tokenizer_;
  std::vector<Span> supervised_;
  std::size_t next_ = 0;
  RenderedConversation& output_;
};

}  // namespace

struct ChatTemplate::Data {
  Data(Tokenizer tokenizer_of_model, std::string system)
      : tokenizer(std::move(tokenizer_of_model)),
        default_system(std::move(system)),
        matcher(tokenizer.added_tokens()) {}

  /// Where `text` spells added tokens: anywhere, or in the template's own text alone.
  std::vector<ControlToken> find_controls(const std::vector<Piece>& pieces, std::string_view text,
                                          AddedTokens content_tokens) const {
    std::vector<ControlToken> controls;
    const auto find_in = [&](std::size_t begin, std::string_view part) {
      for (std::size_t offset = 0; offset < part.size();) {
        const AddedTokenMatcher::Match match = matcher.find(part, offset);
        if (match.token == nullptr) break;
        controls.push_back({begin + match.begin, match.token});
        offset = match.begin + match.token->content.size();
      }
    };
    if (content_tokens == AddedTokens::recognize) {
      find_in(0, text);
      return controls;
    }
    std::size_t begin = 0;
    for (const Piece& piece : pieces) {
      if (piece.markup) find_in(begin, piece.text);
      begin += piece.text.size();
    }
    return controls;
  }

  Tokenizer tokenizer;
  std::string default_system;
  AddedTokenMatcher matcher;
  std::int32_t end_of_turn = -1;
};

ChatTemplate ChatTemplate::load(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  auto data = std::make_shared<Data>(tokenizer, read_default_system(folder));
  for (const std::string_view needed : {turn_start, turn_end}) {
    const std::vector<AddedToken>& tokens = tokenizer.added_tokens();
    const auto found =
        std::find_if(tokens.begin(), tokens.end(), [&](const AddedToken& token) { return token.content == needed; });
    if (found == tokens.end()) {
      throw_invalid_input(
          "{}: the tokenizer has no added token {}, which chat conversations need; use a tokenizer with <|im_start|> "
          "and <|im_end|>, or rows of text or input_ids",
          folder.string(), needed);
    }
    data->end_of_turn = found->id;
  }
  return ChatTemplate(std::move(data));
}

const std::string& ChatTemplate::default_system() const {
  return data_->default_system;
}
std::int32_t ChatTemplate::end_of_turn() const {
  return data_->end_of_turn;
}

std::string ChatTemplate::render(const Conversation& conversation, bool add_generation_prompt) const {
  return concatenate(PieceWriter(conversation, data_->default_system).write(add_generation_prompt));
}

RenderedConversation ChatTemplate::tokenize(const Conversation& conversation, bool add_generation_prompt,
                                            AddedTokens content_tokens) const {
  const std::vector<Piece> pieces = PieceWriter(conversation, data_->default_system).write(add_generation_prompt);
  RenderedConversation rendered;
  rendered.text = concatenate(pieces);
  LabelledEncoder encoder(data_->tokenizer, supervised_spans(pieces), rendered);
  std::size_t offset = 0;
  for (const ControlToken& control : data_->find_controls(pieces, rendered.text, content_tokens)) {
    encoder.append_plain({offset, control.begin});
    encoder.append_control(control);
    offset = control.begin + control.token->content.size();
  }
  encoder.append_plain({offset, rendered.text.size()});
  return rendered;
}

}  // namespace skrull

#pragma once
// The work of `skrull tokenize` and `skrull render`: lines of JSON in, lines of JSON out, one at a time.

#include <iosfwd>

#include "skrull/data/chat_template.h"
#include "skrull/data/tokenizer.h"

namespace skrull {

/// {"text": ..} -> {"ids": [..]} for each line that isn't blank. A bad line throws InvalidInput "<stdin>:<line>: ..."
/// after the output of those before it; output that can't be written throws RunFailure.
void tokenize_lines(const Tokenizer& tokenizer, AddedTokens added_tokens, std::istream& input, std::ostream& output);

struct RenderOptions {
  bool add_generation_prompt = false;
  /// As the model's Jinja template alone would render, without validation, and with ids of the whole text in which
  /// added tokens are recognized; otherwise as training sees the conversation.
  bool raw = false;
};

/// {"messages": [..], "tools": [..]} -> {"text": .., "ids": [..], "labels": [..]}; errors as for tokenize_lines().
void render_lines(const ChatTemplate& chat_template, RenderOptions options, std::istream& input, std::ostream& output);

}  // namespace skrull

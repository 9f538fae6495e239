#pragma once
// Finds added tokens in text: the leftmost, and of those the longest.

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "skrull/data/tokenizer.h"

namespace skrull {

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  struct Match {
    std::size_t begin;
    const AddedToken* token;  ///< null when none is left; `begin` is then the text's size
  };
  Match find(std::string_view text, std::size_t offset) const;

  /// Calls `on_text(std::string_view)` for each stretch without tokens (never empty) and `on_token(const AddedToken&)`
  /// in the order of the text.
  template <class OnText, class OnToken>
  void split(std::string_view text, OnText&& on_text, OnToken&& on_token) const {
    std::size_t offset = 0;
    while (offset < text.size()) {
      const Match match = find(text, offset);
      if (match.begin > offset) on_text(text.substr(offset, match.begin - offset));
      if (match.token == nullptr) return;
      on_token(*match.token);
      offset = match.begin + match.token->content.size();
    }
  }

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  std::vector<AddedToken> tokens_;     ///< by first byte, then the longest first
  std::array<Range, 256> by_first_{};  ///< tokens_ by first byte
  char only_first_ = '\0';             ///< the first byte of all tokens, when they share one
  bool has_only_first_ = false;
};

}  // namespace skrull

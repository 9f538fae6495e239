#include "added_token_matcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace skrull {
namespace {

unsigned char first_byte(std::string_view text) {
  return static_cast<unsigned char>(text[0]);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    const unsigned char first_a = first_byte(a.content);
    const unsigned char first_b = first_byte(b.content);
    return first_a != first_b ? first_a < first_b : a.content.size() > b.content.size();
  });
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    Range& range = by_first_[first_byte(tokens_[i].content)];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
  has_only_first_ = !tokens_.empty() && first_byte(tokens_.front().content) == first_byte(tokens_.back().content);
  if (has_only_first_) only_first_ = tokens_.front().content[0];
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, std::size_t offset) const {
  for (; offset < text.size() && !tokens_.empty(); ++offset) {
    if (has_only_first_) {
      const void* found = std::memchr(text.data() + offset, only_first_, text.size() - offset);
      if (found == nullptr) break;
      offset = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    }
    const Range range = by_first_[static_cast<unsigned char>(text[offset])];
    for (std::size_t i = range.begin; i < range.end; ++i) {
      if (text.substr(offset).starts_with(tokens_[i].content)) return {offset, &tokens_[i]};
    }
  }
  return {text.size(), nullptr};
}

}  // namespace skrull

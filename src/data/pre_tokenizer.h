#pragma once
// Cuts text into the words that byte-pair encoding works on: by Qwen's split pattern with a hand-written scanner, or by
// any other regular expression with PCRE2.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace skrull {

class PreTokenizer {
 public:
  /// The split pattern of Qwen2, Qwen2.5 and Qwen3.
  static const std::string_view qwen_pattern;

  /// Words are the pattern's matches and what lies between them (behaviour "Isolated"). Qwen's pattern takes the
  /// scanner unless `always_pcre2`. Throws InvalidInput with PCRE2's reason when the pattern isn't valid.
  explicit PreTokenizer(std::string_view pattern, bool always_pcre2 = false);

  /// Calls `visit(std::string_view word)` for consecutive words that cover `text`, which must be valid UTF-8.
  /// Safe to call from several threads at once.
  template <class Visit>
  void for_each_word(std::string_view text, Visit&& visit) const {
    if (regex_ == nullptr) {
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = find_qwen_word_end(text, begin);
        visit(text.substr(begin, end - begin));
        begin = end;
      }
      return;
    }
    RegexWords words(*regex_, text);
    for (std::string_view word = words.next(); !word.empty(); word = words.next()) visit(word);
  }

 private:
  struct Regex;

  /// The words of one text, one after the other.
  class RegexWords {
   public:
    RegexWords(const Regex& regex, std::string_view text);
    ~RegexWords();
    RegexWords(const RegexWords&) = delete;
    RegexWords& operator=(const RegexWords&) = delete;
    /// "" at the end.
    std::string_view next();

   private:
    void find_match();
    struct MatchData;
    const Regex& regex_;
    std::string_view text_;
    std::unique_ptr<MatchData> match_data_;
    std::size_t position_ = 0;
    std::size_t match_begin_ = 0;
    std::size_t match_end_ = 0;
  };

  static std::size_t find_qwen_word_end(std::string_view text, std::size_t begin);

  std::shared_ptr<const Regex> regex_;
};

}  // namespace skrull

#include "pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "character_table.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

/// Length of the contraction that follows an apostrophe at `begin` ('s 't 're 've 'm 'll 'd in any case), with the
/// apostrophe, or 0. U+017F is a lower-case s to a caseless pattern.
std::size_t contraction_length(std::string_view text, std::size_t begin) {
  const auto letter = [&](std::size_t k) -> char {
    if (begin + k >= text.size()) return '\0';
    const char c = text[begin + k];
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  constexpr std::string_view long_s = "\xC5\xBF";
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      return text.substr(begin + 1).starts_with(long_s) ? 1 + long_s.size() : 0;
  }
}

/// Walks over characters of one text by their class.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), table_(CharacterTable::instance()) {}

  bool at_end(std::size_t offset) const { return offset >= text_.size(); }

  /// Class of the character at `offset`; sets `next` to the offset after it.
  CharacterClass read(std::size_t offset, std::size_t& next) const {
    const DecodedCharacter character = decode_character(text_, offset);
    next = offset + character.length;
    return table_.character_class(character.code_point);
  }

  /// Offset after the run of characters of this class.
  std::size_t skip(std::size_t offset, CharacterClass wanted) const {
    std::size_t next = offset;
    while (!at_end(offset) && read(offset, next) == wanted) offset = next;
    return offset;
  }

 private:
  std::string_view text_;
  const CharacterTable& table_;
};

/// The three alternatives for white space: \s*[\r\n]+ | \s+(?!\S) | \s+
std::size_t white_space_end(const Scanner& scanner, std::size_t begin) {
  std::size_t offset = begin;
  std::size_t last_character = begin;
  std::size_t after_newline = begin;
  std::size_t next = begin;
  while (!scanner.at_end(offset)) {
    const CharacterClass here = scanner.read(offset, next);
    if (here != CharacterClass::newline && here != CharacterClass::white_space) break;
    if (here == CharacterClass::newline) after_newline = next;
    last_character = offset;
    offset = next;
  }
  if (after_newline > begin) return after_newline;
  // The last white space before a word belongs to that word.
  return scanner.at_end(offset) || last_character == begin ? offset : last_character;
}

/// Oniguruma, which Hugging Face patterns are written for, means the property White_Space by \s; PCRE2 adds U+180E.
std::string translate(std::string_view pattern) {
  std::string translated;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      translated += pattern[i];
      continue;
    }
    ++i;
    if (pattern[i] == 's') {
      translated += "\\p{White_Space}";
    } else if (pattern[i] == 'S') {
      translated += "\\P{White_Space}";
    } else {
      translated += '\\';
      translated += pattern[i];
    }
  }
  return translated;
}

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> message{};
  pcre2_get_error_message(code, message.data(), message.size());
  return reinterpret_cast<const char*>(message.data());
}

}  // namespace

const std::string_view PreTokenizer::qwen_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::size_t PreTokenizer::find_qwen_word_end(std::string_view text, std::size_t begin) {
  const Scanner scanner(text);
  std::size_t second = begin;
  const CharacterClass first_class = scanner.read(begin, second);
  if (first_class == CharacterClass::letter) return scanner.skip(second, CharacterClass::letter);
  if (first_class == CharacterClass::number) return second;
  if (first_class == CharacterClass::newline) return white_space_end(scanner, begin);
  if (text[begin] == '\'') {
    if (const std::size_t length = contraction_length(text, begin); length > 0) return begin + length;
  }
  std::size_t third = second;
  const bool only_one = scanner.at_end(second);
  const CharacterClass second_class = only_one ? CharacterClass::white_space : scanner.read(second, third);
  // [^\r\n\p{L}\p{N}]?\p{L}+
  if (second_class == CharacterClass::letter) return scanner.skip(third, CharacterClass::letter);
  // " ?[^\s\p{L}\p{N}]+[\r\n]*", the first character being the space or one of the class
  if (first_class == CharacterClass::other || (text[begin] == ' ' && second_class == CharacterClass::other)) {
    return scanner.skip(scanner.skip(second, CharacterClass::other), CharacterClass::newline);
  }
  return white_space_end(scanner, begin);
}

struct PreTokenizer::Regex {
  explicit Regex(std::string_view pattern) {
    const std::string translated = translate(pattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF | PCRE2_UCP,
                         &error, &offset, nullptr);
    if (code == nullptr) {
      throw_invalid_input("the split pattern \"{}\" is not a valid regular expression: {} (at byte {} of \"{}\")",
                          pattern, pcre2_message(error), offset, translated);
    }
    // Without a just-in-time compiler the interpreter serves.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  }
  ~Regex() { pcre2_code_free(code); }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  pcre2_code* code = nullptr;
};

struct PreTokenizer::RegexWords::MatchData {
  explicit MatchData(const pcre2_code* code) : data(pcre2_match_data_create_from_pattern(code, nullptr)) {
    require(data != nullptr, "no memory for a regular expression match");
  }
  ~MatchData() { pcre2_match_data_free(data); }
  MatchData(const MatchData&) = delete;
  MatchData& operator=(const MatchData&) = delete;

  pcre2_match_data* data;
};

PreTokenizer::PreTokenizer(std::string_view pattern, bool always_pcre2)
    : regex_(pattern == qwen_pattern && !always_pcre2 ? nullptr : std::make_shared<const Regex>(pattern)) {}

PreTokenizer::RegexWords::RegexWords(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), match_data_(std::make_unique<MatchData>(regex.code)) {}

PreTokenizer::RegexWords::~RegexWords() = default;

std::string_view PreTokenizer::RegexWords::next() {
  if (position_ >= text_.size()) return {};
  if (position_ >= match_end_) find_match();
  const std::size_t begin = position_;
  position_ = begin < match_begin_ ? match_begin_ : match_end_;
  return text_.substr(begin, position_ - begin);
}

/// The next match that isn't empty, or an empty one at the end of the text.
void PreTokenizer::RegexWords::find_match() {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  constexpr std::uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
  int result = pcre2_match(regex_.code, subject, text_.size(), position_, options, match_data_->data, nullptr);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result =
        pcre2_match(regex_.code, subject, text_.size(), position_, options | PCRE2_NO_JIT, match_data_->data, nullptr);
  }
  if (result == PCRE2_ERROR_NOMATCH) {
    match_begin_ = match_end_ = text_.size();
    return;
  }
  require(result > 0, "splitting a text of {} bytes failed: {}", text_.size(), pcre2_message(result));
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match_data_->data);
  match_begin_ = offsets[0];
  match_end_ = offsets[1];
}

}  // namespace skrull

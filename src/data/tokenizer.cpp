#include "skrull/data/tokenizer.h"

#include <algorithm>
#include <utility>

#include "added_token_matcher.h"
#include "nfc.h"
#include "pre_tokenizer.h"
#include "skrull/core/error.h"
#include "skrull/core/text.h"
#include "tokenizer_files.h"

namespace skrull {
namespace {

/// Typical bytes per token, to reserve room.
constexpr std::size_t bytes_per_token = 3;

std::vector<AddedToken> select(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> selected;
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(selected),
               [&](const AddedToken& token) { return token.normalized == normalized; });
  return selected;
}

}  // namespace

struct Tokenizer::Data {
  explicit Data(TokenizerDefinition definition)
      : model(std::move(definition.model)),
        pre_tokenizer(definition.split_pattern),
        nfc(definition.nfc),
        added_tokens(std::move(definition.added_tokens)),
        raw_matcher(select(added_tokens, false)),
        normalized_matcher(select(added_tokens, true)),
        vocab_size(model.id_end()),
        files(std::move(definition.files)) {
    if (!added_tokens.empty()) vocab_size = std::max<std::int64_t>(vocab_size, added_tokens.back().id + 1);
    eos_id = find_added_or_plain(definition.eos_token);
    pad_id = find_added_or_plain(definition.pad_token);
  }

  const AddedToken* find_added(std::int32_t id) const {
    const auto found = std::lower_bound(added_tokens.begin(), added_tokens.end(), id,
                                        [](const AddedToken& token, std::int32_t wanted) { return token.id < wanted; });
    return found != added_tokens.end() && found->id == id ? &*found : nullptr;
  }

  std::optional<std::int32_t> find_added_or_plain(std::string_view text) const {
    for (const AddedToken& token : added_tokens) {
      if (token.content == text) return token.id;
    }
    return model.find(text);
  }

  void append_words(std::string_view text, std::vector<std::int32_t>& ids) const {
    pre_tokenizer.for_each_word(text, [&](std::string_view word) { model.encode_word(word, ids); });
  }

  /// `text` has no added token that is looked for before normalization.
  void append_stretch(std::string_view text, AddedTokens mode, std::string& buffer,
                      std::vector<std::int32_t>& ids) const {
    const std::string_view normalized = nfc ? normalize_nfc(text, buffer) : text;
    if (mode == AddedTokens::plain || normalized_matcher.empty()) {
      append_words(normalized, ids);
      return;
    }
    normalized_matcher.split(
        normalized, [&](std::string_view part) { append_words(part, ids); },
        [&](const AddedToken& token) { ids.push_back(token.id); });
  }

  BpeModel model;
  PreTokenizer pre_tokenizer;
  bool nfc;
  std::vector<AddedToken> added_tokens;
  AddedTokenMatcher raw_matcher;
  AddedTokenMatcher normalized_matcher;
  std::int64_t vocab_size;
  std::optional<std::int32_t> eos_id;
  std::optional<std::int32_t> pad_id;
  std::vector<std::filesystem::path> files;
};

bool Tokenizer::is_in(const std::filesystem::path& folder) {
  return has_tokenizer_files(folder);
}

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  TokenizerDefinition definition = read_tokenizer_folder(folder);
  try {
    return Tokenizer(std::make_shared<const Data>(std::move(definition)));
  } catch (const InvalidInput& error) {
    throw_invalid_input("{}: {}", folder.string(), error.what());
  }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, AddedTokens added_tokens) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / bytes_per_token + 8);
  append(text, added_tokens, ids);
  return ids;
}

void Tokenizer::append(std::string_view text, AddedTokens added_tokens, std::vector<std::int32_t>& ids) const {
  if (const std::size_t invalid = find_invalid_utf8(text); invalid != std::string_view::npos) {
    throw_invalid_input("the text is not valid UTF-8 at byte {} of {}", invalid, text.size());
  }
  std::string buffer;
  if (added_tokens == AddedTokens::plain) {
    data_->append_stretch(text, added_tokens, buffer, ids);
    return;
  }
  data_->raw_matcher.split(
      text, [&](std::string_view stretch) { data_->append_stretch(stretch, added_tokens, buffer, ids); },
      [&](const AddedToken& token) { ids.push_back(token.id); });
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size() * bytes_per_token);
  for (const std::int32_t id : ids) text += token_bytes(id);
  return text;
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  const AddedToken* added = data_->find_added(id);
  return added != nullptr ? std::string_view(added->content) : data_->model.token_bytes(id);
}

std::int64_t Tokenizer::vocab_size() const {
  return data_->vocab_size;
}
const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return data_->added_tokens;
}
std::optional<std::int32_t> Tokenizer::find_token(std::string_view text) const {
  return data_->find_added_or_plain(text);
}
std::optional<std::int32_t> Tokenizer::eos_id() const {
  return data_->eos_id;
}
std::optional<std::int32_t> Tokenizer::pad_id() const {
  return data_->pad_id;
}
const std::vector<std::filesystem::path>& Tokenizer::files() const {
  return data_->files;
}

std::string StreamDecoder::push(std::int32_t id) {
  pending_ += tokenizer_.token_bytes(id);
  // An incomplete character is a lead byte among the last three with fewer bytes after it than it announces.
  std::size_t complete = pending_.size();
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, pending_.size()); ++back) {
    const auto byte = static_cast<unsigned char>(pending_[pending_.size() - back]);
    if ((byte & 0xC0U) == 0x80) continue;
    const std::size_t announced = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    if (announced > back) complete = pending_.size() - back;
    break;
  }
  std::string text = pending_.substr(0, complete);
  pending_.erase(0, complete);
  return text;
}

std::string StreamDecoder::finish() {
  return std::exchange(pending_, {});
}

}  // namespace skrull

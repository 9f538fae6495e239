#pragma once
// Byte-level byte-pair encoding of single words: a vocabulary of byte strings and ranked merges of two tokens into one.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skrull {

class BpeModel {
 public:
  /// Ids and merge ranks must be below this: a pair of ids and a rank share one 64-bit word.
  static constexpr std::int64_t id_limit = (std::int64_t{1} << 21) - 1;

  /// Appends the ids of `word` (any bytes) to `ids`. The result is that of merging, again and again, the leftmost pair
  /// of lowest rank. Takes O(n log n) for n bytes. Safe to call from several threads at once; each keeps a cache of
  /// words of a fixed size. Throws InvalidInput when a byte of `word` isn't in the vocabulary.
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  /// The bytes of a token; "" for an id that isn't in the vocabulary.
  std::string_view token_bytes(std::int32_t id) const;
  /// The token with exactly these bytes.
  std::optional<std::int32_t> find(std::string_view bytes) const;
  /// One more than the largest id.
  std::int64_t id_end() const { return static_cast<std::int64_t>(tokens_.size()); }

 private:
  friend class BpeBuilder;

  struct Span {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
  };
  using Rank = std::uint32_t;
  static constexpr Rank no_rank = ~Rank{0};

  std::string_view bytes_of(Span span) const { return std::string_view(arena_).substr(span.begin, span.size); }
  Rank find_rank(std::int32_t left, std::int32_t right) const;
  void merge_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  void merge_short(std::string_view word, std::vector<std::int32_t>& ids) const;
  void merge_long(std::string_view word, std::vector<std::int32_t>& ids) const;
  std::int32_t byte_id(char byte) const;

  std::string arena_;                       ///< all tokens' bytes
  std::vector<Span> tokens_;                ///< by id
  std::vector<std::int32_t> index_;         ///< hash table of ids by their bytes, -1 empty; size a power of two
  std::array<std::int32_t, 256> byte_ids_;  ///< -1 where the vocabulary has no token for the byte
  std::vector<std::uint64_t> pairs_;        ///< hash table: left id, right id, rank (21 bits each); all ones = empty
  std::vector<std::int32_t> merged_ids_;    ///< by rank
  std::uint32_t pair_shift_ = 63;           ///< 64 - log2(size of pairs_)
  std::uint32_t serial_ = 0;                ///< of this model in this process; the word caches' entries carry it
};

/// Collects a vocabulary and merges in any order. Errors name the token or the number of the merge.
class BpeBuilder {
 public:
  /// `token` in the byte-level alphabet, as vocab.json has it. Throws InvalidInput (id out of range).
  void add_token(std::string_view token, std::int64_t id);
  /// Two tokens in the byte-level alphabet; the rank is the number of merges added before.
  void add_merge(std::string_view left, std::string_view right);
  /// "left right", as merges.txt and the older tokenizer.json have it. Throws InvalidInput (not two parts).
  void add_merge_line(std::string_view line);
  /// Throws InvalidInput: two tokens with one id, a merge of or into something that isn't in the vocabulary.
  BpeModel build();

  std::int64_t token_count() const { return static_cast<std::int64_t>(entries_.size()); }
  std::int64_t merge_count() const { return static_cast<std::int64_t>(merges_.size()); }

 private:
  struct Entry {
    std::int32_t id;
    BpeModel::Span span;
    bool in_alphabet;
  };
  struct Merge {
    BpeModel::Span left;
    BpeModel::Span right;
  };

  void build_tokens(BpeModel& model) const;
  void build_merges(BpeModel& model) const;

  std::string arena_;
  std::string merge_arena_;
  std::vector<Entry> entries_;
  std::vector<Merge> merges_;
};

}  // namespace skrull

#include "bpe.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>

#include "byte_alphabet.h"
#include "hash_bytes.h"
#include "skrull/core/error.h"
#include "skrull/core/narrow.h"

namespace skrull {
namespace {

constexpr std::uint32_t id_bits = 21;
constexpr std::uint64_t rank_mask = (std::uint64_t{1} << id_bits) - 1;
constexpr std::uint64_t empty_pair = ~std::uint64_t{0};

/// Words up to this many bytes are merged in a dense array, longer ones with a heap.
constexpr std::size_t short_word = 128;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << id_bits | static_cast<std::uint64_t>(right);
}

std::size_t pair_slot(std::uint64_t key, std::uint32_t shift) {
  constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>((key * golden_ratio) >> shift);
}

/// One word and its ids in one cache line.
struct alignas(64) CachedWord {
  static constexpr std::size_t longest = 34;
  static constexpr std::size_t most_ids = 6;

  std::uint32_t serial = 0;  ///< of the model; 0 = empty
  std::uint8_t size = 0;
  std::uint8_t id_count = 0;
  std::array<char, longest> word{};
  std::array<std::int32_t, most_ids> ids{};

  bool holds(std::uint32_t wanted_serial, std::string_view wanted) const {
    return serial == wanted_serial && size == wanted.size() && std::memcmp(word.data(), wanted.data(), size) == 0;
  }
};
static_assert(sizeof(CachedWord) == 64);

/// Each hash has two places, the second for the word that was there before: common words stay, memory never grows.
class WordCache {
 public:
  using Places = std::array<CachedWord, 2>;
  Places& places(std::string_view word) { return sets_[hash_bytes(word.data(), word.size()) >> (64 - set_bits)]; }

 private:
  static constexpr std::uint32_t set_bits = 15;
  std::vector<Places> sets_ = std::vector<Places>(std::size_t{1} << set_bits);
};

WordCache& word_cache_of_thread() {
  thread_local WordCache cache;
  return cache;
}

std::uint32_t next_serial() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

}  // namespace

void BpeModel::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.size() > CachedWord::longest) {
    merge_word(word, ids);
    return;
  }
  WordCache::Places& places = word_cache_of_thread().places(word);
  for (const CachedWord& cached : places) {
    if (!cached.holds(serial_, word)) continue;
    ids.insert(ids.end(), cached.ids.begin(), cached.ids.begin() + cached.id_count);
    return;
  }
  const std::size_t before = ids.size();
  merge_word(word, ids);
  const std::size_t count = ids.size() - before;
  if (count > CachedWord::most_ids) return;
  places[1] = places[0];
  CachedWord& cached = places[0];
  cached.serial = serial_;
  cached.size = static_cast<std::uint8_t>(word.size());
  cached.id_count = static_cast<std::uint8_t>(count);
  std::copy(word.begin(), word.end(), cached.word.begin());
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), cached.ids.begin());
}

std::int32_t BpeModel::byte_id(char byte) const {
  const auto value = static_cast<unsigned char>(byte);
  const std::int32_t id = byte_ids_[value];
  if (id < 0) throw_invalid_input("the tokenizer's vocabulary has no token for the byte 0x{:02X}", value);
  return id;
}

BpeModel::Rank BpeModel::find_rank(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  const std::size_t mask = pairs_.size() - 1;
  for (std::size_t slot = pair_slot(key, pair_shift_);; slot = (slot + 1) & mask) {
    const std::uint64_t entry = pairs_[slot];
    if (entry >> id_bits == key) return static_cast<Rank>(entry & rank_mask);
    if (entry == empty_pair) return no_rank;
  }
}

void BpeModel::merge_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.size() <= short_word) {
    merge_short(word, ids);
  } else {
    merge_long(word, ids);
  }
}

void BpeModel::merge_short(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, short_word> symbols;  // NOLINT: filled below, as far as it is read
  std::array<Rank, short_word> ranks;            // NOLINT: ranks[i] is that of symbols i and i + 1
  std::size_t count = word.size();
  for (std::size_t i = 0; i < count; ++i) symbols[i] = byte_id(word[i]);
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = find_rank(symbols[i], symbols[i + 1]);
  while (count > 1) {
    Rank lowest = no_rank;
    for (std::size_t i = 0; i + 1 < count; ++i) lowest = std::min(lowest, ranks[i]);
    if (lowest == no_rank) break;
    std::size_t at = 0;
    while (ranks[at] != lowest) ++at;
    symbols[at] = merged_ids_[lowest];
    const std::size_t moved = count - at - 2;
    std::memmove(symbols.data() + at + 1, symbols.data() + at + 2, moved * sizeof(std::int32_t));
    std::memmove(ranks.data() + at, ranks.data() + at + 1, moved * sizeof(Rank));
    --count;
    if (at > 0) ranks[at - 1] = find_rank(symbols[at - 1], symbols[at]);
    if (at + 1 < count) ranks[at] = find_rank(symbols[at], symbols[at + 1]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
}

void BpeModel::merge_long(std::string_view word, std::vector<std::int32_t>& ids) const {
  // A linked list of symbols and a heap of (rank, position); an entry whose pair has changed since is skipped.
  struct Symbol {
    std::int32_t id;
    std::uint32_t previous;
    std::uint32_t next;
    Rank rank;  ///< of this symbol and the next
  };
  const auto count = narrow<std::uint32_t>(word.size());
  std::vector<Symbol> symbols(count);
  std::vector<std::uint64_t> heap;
  const auto entry = [](Rank rank, std::uint32_t position) { return std::uint64_t{rank} << 32U | position; };
  for (std::uint32_t i = 0; i < count; ++i) symbols[i] = {byte_id(word[i]), i - 1, i + 1, no_rank};
  for (std::uint32_t i = 0; i + 1 < count; ++i) {
    symbols[i].rank = find_rank(symbols[i].id, symbols[i + 1].id);
    if (symbols[i].rank != no_rank) heap.push_back(entry(symbols[i].rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto update = [&](std::uint32_t position) {
    Symbol& symbol = symbols[position];
    symbol.rank = symbol.next < count ? find_rank(symbol.id, symbols[symbol.next].id) : no_rank;
    if (symbol.rank == no_rank) return;
    heap.push_back(entry(symbol.rank, position));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<Rank>(heap.back() >> 32U);
    const auto position = static_cast<std::uint32_t>(heap.back());
    heap.pop_back();
    Symbol& symbol = symbols[position];
    if (symbol.rank != rank) continue;
    symbol.id = merged_ids_[rank];
    Symbol& removed = symbols[symbol.next];
    removed.rank = no_rank;
    symbol.next = removed.next;
    if (symbol.next < count) symbols[symbol.next].previous = position;
    update(position);
    if (position > 0) update(symbol.previous);
  }
  for (std::uint32_t i = 0; i < count; i = symbols[i].next) ids.push_back(symbols[i].id);
}

std::string_view BpeModel::token_bytes(std::int32_t id) const {
  return id < 0 || id >= id_end() ? std::string_view() : bytes_of(tokens_[static_cast<std::size_t>(id)]);
}

std::optional<std::int32_t> BpeModel::find(std::string_view bytes) const {
  const std::size_t mask = index_.size() - 1;
  for (std::size_t slot = hash_bytes(bytes.data(), bytes.size()) & mask;; slot = (slot + 1) & mask) {
    const std::int32_t id = index_[slot];
    if (id < 0) return std::nullopt;
    if (bytes_of(tokens_[static_cast<std::size_t>(id)]) == bytes) return id;
  }
}

void BpeBuilder::add_token(std::string_view token, std::int64_t id) {
  if (id < 0 || id >= BpeModel::id_limit) {
    throw_invalid_input("the token \"{}\" has the id {}; expected 0 to {}", token, id, BpeModel::id_limit - 1);
  }
  const std::size_t begin = arena_.size();
  const bool in_alphabet = append_alphabet_bytes(token, arena_);
  if (!in_alphabet) arena_ += token;
  entries_.push_back({static_cast<std::int32_t>(id),
                      {narrow<std::uint32_t>(begin), narrow<std::uint32_t>(arena_.size() - begin)},
                      in_alphabet});
}

void BpeBuilder::add_merge(std::string_view left, std::string_view right) {
  const auto store = [&](std::string_view token) -> BpeModel::Span {
    const std::size_t begin = merge_arena_.size();
    if (!append_alphabet_bytes(token, merge_arena_)) {
      throw_invalid_input("merge {} has a part \"{}\" that is not written in the byte-level alphabet", merges_.size(),
                          token);
    }
    return {narrow<std::uint32_t>(begin), narrow<std::uint32_t>(merge_arena_.size() - begin)};
  };
  if (merge_count() >= BpeModel::id_limit) throw_invalid_input("more than {} merges", BpeModel::id_limit);
  merges_.push_back({store(left), store(right)});
}

void BpeBuilder::add_merge_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  const bool two_parts = space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
                         line.find(' ', space + 1) == std::string_view::npos;
  if (!two_parts)
    throw_invalid_input("merge {} is \"{}\"; expected two tokens and a space between", merge_count(), line);
  add_merge(line.substr(0, space), line.substr(space + 1));
}

BpeModel BpeBuilder::build() {
  BpeModel model;
  model.arena_ = std::move(arena_);
  model.serial_ = next_serial();
  build_tokens(model);
  build_merges(model);
  return model;
}

void BpeBuilder::build_tokens(BpeModel& model) const {
  std::int32_t last_id = -1;
  for (const Entry& entry : entries_) last_id = std::max(last_id, entry.id);
  model.tokens_.resize(static_cast<std::size_t>(last_id) + 1);
  model.index_.assign(std::bit_ceil(entries_.size() * 2 + 1), -1);
  const std::size_t mask = model.index_.size() - 1;
  std::vector<bool> taken(model.tokens_.size());
  for (const Entry& entry : entries_) {
    const auto id = static_cast<std::size_t>(entry.id);
    const std::string_view bytes = model.bytes_of(entry.span);
    if (taken[id]) throw_invalid_input("the token \"{}\" has the id {} of another token", to_byte_alphabet(bytes), id);
    taken[id] = true;
    model.tokens_[id] = entry.span;
    if (!entry.in_alphabet || model.find(bytes)) continue;
    std::size_t slot = hash_bytes(bytes.data(), bytes.size()) & mask;
    while (model.index_[slot] >= 0) slot = (slot + 1) & mask;
    model.index_[slot] = entry.id;
  }
  for (std::size_t byte = 0; byte < model.byte_ids_.size(); ++byte) {
    const auto letter = static_cast<char>(byte);
    model.byte_ids_[byte] = model.find(std::string_view(&letter, 1)).value_or(-1);
  }
}

void BpeBuilder::build_merges(BpeModel& model) const {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(2, merges_.size() * 3 / 2 + 1));
  model.pairs_.assign(slots, empty_pair);
  model.pair_shift_ = 64 - static_cast<std::uint32_t>(std::countr_zero(slots));
  model.merged_ids_.reserve(merges_.size());
  const auto bytes = [&](BpeModel::Span span) { return std::string_view(merge_arena_).substr(span.begin, span.size); };
  const auto id_of = [&](std::string_view token) {
    const std::optional<std::int32_t> id = model.find(token);
    if (!id) {
      throw_invalid_input("merge {} needs the token \"{}\", which is not in the vocabulary", model.merged_ids_.size(),
                          to_byte_alphabet(token));
    }
    return *id;
  };
  std::string merged;
  for (const Merge& merge : merges_) {
    merged = bytes(merge.left);
    merged += bytes(merge.right);
    const std::uint64_t key = pair_key(id_of(bytes(merge.left)), id_of(bytes(merge.right)));
    std::size_t slot = pair_slot(key, model.pair_shift_);
    while (model.pairs_[slot] != empty_pair && model.pairs_[slot] >> id_bits != key) slot = (slot + 1) & (slots - 1);
    model.pairs_[slot] = key << id_bits | model.merged_ids_.size();
    model.merged_ids_.push_back(id_of(merged));
  }
}

}  // namespace skrull

#include "skrull/data/sample_report.h"

#include <algorithm>
#include <span>

#include "skrull/core/error.h"
#include "skrull/core/text.h"
#include "skrull/data/micro_batch.h"

namespace skrull {
namespace {

/// Valid UTF-8 without control characters but line break and tab.
std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, find_invalid_utf8(text));
    for (const char letter : valid) {
      const auto byte = static_cast<unsigned char>(letter);
      const bool control = (byte < 0x20 && letter != '\n' && letter != '\t') || byte == 0x7F;
      result += control ? '?' : letter;
    }
    if (valid.size() == text.size()) break;
    result += "\xEF\xBF\xBD";
    text.remove_prefix(valid.size() + 1);
  }
  return result;
}

/// Text of tokens of which all or none are trained.
class RunWriter {
 public:
  RunWriter(std::span<const std::int32_t> ids, const TextEncoder* encoder) : ids_(ids), encoder_(encoder) {}

  std::string write(std::size_t begin, std::size_t end, bool trained) const {
    constexpr std::size_t shown_at_begin = 64;
    constexpr std::size_t shown_at_end = 32;
    std::string text;
    if (end - begin <= shown_at_begin + shown_at_end) {
      text = tokens(begin, end);
    } else {
      text = fmt::format("{} [... {} tokens ...] {}", tokens(begin, begin + shown_at_begin),
                         end - begin - shown_at_begin - shown_at_end, tokens(end - shown_at_end, end));
    }
    return trained ? "⟦" + text + "⟧" : text;
  }

 private:
  std::string tokens(std::size_t begin, std::size_t end) const {
    const auto part = ids_.subspan(begin, end - begin);
    return encoder_ != nullptr ? printable(encoder_->decode(part)) : fmt::format("{}", fmt::join(part, " "));
  }

  std::span<const std::int32_t> ids_;
  const TextEncoder* encoder_;
};

}  // namespace

LengthStatistics measure_lengths(const TokenStore& store, const std::vector<std::int64_t>& samples) {
  require(!samples.empty(), "lengths of no samples");
  LengthStatistics statistics;
  statistics.samples = static_cast<std::int64_t>(samples.size());
  std::vector<std::int64_t> lengths;
  lengths.reserve(samples.size());
  for (const std::int64_t sample : samples) {
    const std::int64_t length = store.length(sample);
    lengths.push_back(length);
    statistics.tokens += length;
    statistics.supervised += store.supervised(sample);
    if (length > statistics.longest) {
      statistics.longest = length;
      statistics.longest_sample = sample;
    }
  }
  statistics.shortest = *std::min_element(lengths.begin(), lengths.end());
  const auto middle = lengths.begin() + (statistics.samples - 1) / 2;
  std::nth_element(lengths.begin(), middle, lengths.end());
  statistics.median = *middle;
  return statistics;
}

std::string describe_lengths(const LengthStatistics& statistics) {
  return fmt::format("{} samples, {} tokens, {} of them trained; lengths {} to {}, median {}",
                     format_count(statistics.samples), format_count(statistics.tokens),
                     format_count(statistics.supervised), format_count(statistics.shortest),
                     format_count(statistics.longest), format_count(statistics.median));
}

std::optional<std::string> position_limit_warning(const TokenStore& store, const LengthStatistics& statistics,
                                                  std::int64_t max_position_embeddings) {
  if (statistics.longest <= max_position_embeddings) return std::nullopt;
  return fmt::format(
      "the longest sample has {} tokens ({}), more than the {} positions the model was made for "
      "(max_position_embeddings)",
      format_count(statistics.longest), store.describe(statistics.longest_sample),
      format_count(max_position_embeddings));
}

std::string describe_sample(const TokenStore& store, std::int64_t sample, const TextEncoder* encoder) {
  constexpr std::size_t most_runs = 16;
  const auto ids = store.ids(sample);
  const auto labels = store.labels(sample);
  const auto trained = [&](std::size_t token) { return token > 0 && labels[token - 1] != ignored_label; };
  const RunWriter writer(ids, encoder);
  std::string text = fmt::format("{}: {} tokens, the {} trained ones between ⟦ and ⟧:\n", store.describe(sample),
                                 format_count(store.length(sample)), format_count(store.supervised(sample)));
  std::size_t runs = 0;
  for (std::size_t begin = 0; begin < ids.size();) {
    if (++runs > most_runs) return text + fmt::format(" [... {} more tokens]", ids.size() - begin);
    std::size_t end = begin + 1;
    while (end < ids.size() && trained(end) == trained(begin)) ++end;
    if (encoder == nullptr && begin > 0) text += " ";
    text += writer.write(begin, end, trained(begin));
    begin = end;
  }
  return text;
}

}  // namespace skrull

#include "skrull/data/sample.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "row_parser.h"
#include "skrull/core/error.h"
#include "skrull/core/text.h"
#include "skrull/data/conversation.h"
#include "skrull/data/micro_batch.h"

namespace skrull {
namespace {

/// What stands in the place of a token id, for messages.
std::string describe_element(const OrderedJson& element) {
  if (element.is_number()) return element.dump();
  if (element.is_binary()) return "beyond 64 bits";  // see parse_row()
  return fmt::format("of type {}", element.type_name());
}

/// The integers of `array`. `name` is the key that holds it.
std::vector<std::int32_t> read_integers(const OrderedJson& array, std::string_view name) {
  if (!array.is_array()) throw_invalid_input("\"{}\" is of type {}, expected an array", name, array.type_name());
  std::vector<std::int32_t> integers;
  integers.reserve(array.size());
  for (const OrderedJson& element : array) {
    const bool fits = element.is_number_unsigned()
                          ? element.get<std::uint64_t>() <= INT32_MAX
                          : element.is_number_integer() && element.get<std::int64_t>() >= INT32_MIN;
    if (!fits) {
      throw_invalid_input("{}[{}] is {}, expected a token id", name, integers.size(), describe_element(element));
    }
    integers.push_back(element.get<std::int32_t>());
  }
  return integers;
}

UnshiftedSample read_input_ids(const OrderedJson& row) {
  UnshiftedSample sample;
  sample.ids = read_integers(row.at("input_ids"), "input_ids");
  if (sample.ids.empty()) throw_invalid_input("\"input_ids\" is empty, expected at least one token id");
  const auto labels = row.find("labels");
  // Tables of mixed rows are written with null where a row has no such column.
  const bool has_labels = labels != row.end() && !labels->is_null();
  sample.labels = has_labels ? read_integers(*labels, "labels") : sample.ids;
  if (sample.labels.size() != sample.ids.size()) {
    throw_invalid_input(
        "\"labels\" has {} entries and \"input_ids\" {}, expected equal numbers (labels are not shifted, {} where "
        "nothing is trained)",
        sample.labels.size(), sample.ids.size(), ignored_label);
  }
  return sample;
}

void check_vocabulary(const std::vector<std::int32_t>& ids, std::string_view name, std::int64_t vocab_size,
                      std::optional<std::int32_t> also_allowed = std::nullopt) {
  const auto bad = std::find_if(ids.begin(), ids.end(),
                                [&](std::int32_t id) { return (id < 0 || id >= vocab_size) && id != also_allowed; });
  if (bad == ids.end()) return;
  throw_invalid_input("{}[{}] is {}, outside the model's vocabulary of {} tokens", name, bad - ids.begin(), *bad,
                      vocab_size);
}

UnshiftedSample encode_row(ParsedRow& parsed, const TextEncoder* encoder) {
  if (parsed.kind == RowKind::input_ids) return read_input_ids(parsed.value);
  if (encoder == nullptr) {
    throw_invalid_input("the row needs a tokenizer and the model folder has none; rows of \"input_ids\" do without");
  }
  if (parsed.kind == RowKind::messages) {
    apply_system(parsed.value);
    return encoder->encode_conversation(parsed.value);
  }
  const OrderedJson& text = parsed.value.at("text");
  if (!text.is_string()) throw_invalid_input("\"text\" is of type {}, expected text", text.type_name());
  return encoder->encode_document(text.get_ref<const std::string&>());
}

}  // namespace

TokenizedSample shift_labels(UnshiftedSample unshifted) {
  TokenizedSample sample{std::move(unshifted.ids), std::move(unshifted.labels), 0};
  if (sample.labels.empty()) return sample;
  std::shift_left(sample.labels.begin(), sample.labels.end(), 1);
  sample.labels.back() = ignored_label;
  sample.supervised = static_cast<std::int64_t>(sample.labels.size()) -
                      std::count(sample.labels.begin(), sample.labels.end(), ignored_label);
  return sample;
}

SampleBuilder::SampleBuilder(const TextEncoder* encoder, const SampleOptions& options)
    : encoder_(encoder), options_(options) {
  require(options.cutoff_len >= 1 && options.vocab_size >= 1,
          "samples: cutoff_len {}, vocab_size {}: must be at least 1", options.cutoff_len, options.vocab_size);
}

RowResult SampleBuilder::build(const Row& row, const std::string& file) const {
  ParsedRow parsed = read_row(row, file);
  try {
    UnshiftedSample unshifted = encode_row(parsed, encoder_);
    check_vocabulary(unshifted.ids, "input_ids", options_.vocab_size);
    check_vocabulary(unshifted.labels, "labels", options_.vocab_size, ignored_label);
    RowResult result;
    result.ignored = std::move(parsed.ignored);
    result.ignored.insert(result.ignored.end(), unshifted.ignored_fields.begin(), unshifted.ignored_fields.end());
    finish(std::move(unshifted), result);
    return result;
  } catch (const InvalidInput& error) {
    throw_invalid_input("{}:{}: {}", file, row.line, error.what());
  }
}

void SampleBuilder::finish(UnshiftedSample unshifted, RowResult& result) const {
  result.original_length = static_cast<std::int64_t>(unshifted.ids.size());
  if (result.original_length > options_.cutoff_len) {
    if (options_.overlength == OverlengthPolicy::error) {
      throw_invalid_input("the row has {} tokens, more than cutoff_len {} (overlength: error)", result.original_length,
                          options_.cutoff_len);
    }
    if (options_.overlength == OverlengthPolicy::drop) {
      result.outcome = RowOutcome::overlength;
      return;
    }
    // Cut before the shift: the last kept token then has no label, as its successor is gone.
    unshifted.ids.resize(static_cast<std::size_t>(options_.cutoff_len));
    unshifted.labels.resize(static_cast<std::size_t>(options_.cutoff_len));
    result.outcome = RowOutcome::truncated;
  }
  TokenizedSample sample = shift_labels(std::move(unshifted));
  if (sample.supervised == 0) {
    result.outcome = RowOutcome::untrained;
    return;
  }
  result.sample = std::move(sample);
}

}  // namespace skrull

#include "skrull/data/token_store.h"

#include <utility>

#include "skrull/core/error.h"
#include "token_file.h"

namespace skrull {

TokenStore::TokenStore(const std::filesystem::path& cache_file, std::vector<std::filesystem::path> files)
    : files_(std::move(files)), mapped_(cache_file) {
  try {
    TokenFileView view = view_token_file(mapped_, false);
    tokens_ = view.tokens;
    records_ = view.records;
    report_ = std::move(view.report);
    checksum_ = std::move(view.content_checksum);
  } catch (const InvalidInput& error) {
    throw_run_failure("{}: the token cache is not usable: {}; delete it", cache_file.string(), error.what());
  }
}

std::span<const std::int32_t> TokenStore::ids(std::int64_t sample) const {
  const SampleRecord& found = record(sample);
  return tokens_.subspan(static_cast<std::size_t>(found.begin), static_cast<std::size_t>(found.length));
}

std::span<const std::int32_t> TokenStore::labels(std::int64_t sample) const {
  const SampleRecord& found = record(sample);
  return tokens_.subspan(static_cast<std::size_t>(found.begin + found.length), static_cast<std::size_t>(found.length));
}

const SampleRecord& TokenStore::record(std::int64_t sample) const {
  require(sample >= 0 && sample < size(), "sample {} of a token store of {}", sample, size());
  return records_[static_cast<std::size_t>(sample)];
}

}  // namespace skrull

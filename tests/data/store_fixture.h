#pragma once
// Data files and token stores for tests.

#include <fstream>
#include <string>
#include <vector>

#include "byte_encoder.h"
#include "skrull/core/log.h"
#include "skrull/data/token_store.h"
#include "support/support.h"

namespace skrull::test {

/// A folder with data files and a cache.
class StoreFixture {
 public:
  StoreFixture() { log::set_verbose(false); }

  std::filesystem::path write(const std::string& name, const std::string& content) {
    const std::filesystem::path file = folder_ / name;
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

  TokenStoreRequest request(const std::vector<std::filesystem::path>& files) const {
    return {files, &encoder_, {100, OverlengthPolicy::drop, 1000}, folder_ / "cache", 2, {}};
  }

  TokenStore open(const TokenStoreRequest& request) const { return {build_token_store(request), request.files}; }

  /// A store of input_ids rows of these lengths, all tokens trained; token t of row i is (17 i + t) mod 1000.
  TokenStore of_lengths(const std::vector<std::int64_t>& lengths) {
    std::string rows;
    for (std::size_t i = 0; i < lengths.size(); ++i) rows += row_of_length(i, lengths[i]);
    TokenStoreRequest made = request({write("lengths.jsonl", rows)});
    made.options.cutoff_len = 1 << 20;
    return open(made);
  }

  static std::string row_of_length(std::size_t row, std::int64_t length) {
    std::string ids;
    for (std::int64_t t = 0; t < length; ++t) {
      ids += fmt::format("{}{}", t > 0 ? "," : "", (17 * static_cast<std::int64_t>(row) + t) % 1000);
    }
    return fmt::format("{{\"input_ids\": [{}]}}\n", ids);
  }

  const TemporaryFolder& folder() const { return folder_; }
  const ByteEncoder& encoder() const { return encoder_; }

 private:
  TemporaryFolder folder_;
  ByteEncoder encoder_;
};

inline std::vector<std::int32_t> to_vector(std::span<const std::int32_t> values) {
  return {values.begin(), values.end()};
}

}  // namespace skrull::test

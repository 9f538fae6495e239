#pragma once
// The file of a token store: ids and labels of all samples | SampleRecords | row report (JSON) | trailer. Written front
// to back; the trailer comes last, so that a file cut short has none.

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skrull/core/checksum.h"
#include "skrull/core/file.h"
#include "skrull/data/token_store.h"

namespace skrull {

/// Changes with the format and with anything in this program that decides the tokens of a row.
inline constexpr std::string_view token_file_version = "skrull-tokens/1";

struct TokenFileTrailer {
  std::array<char, 16> version{};
  std::int64_t token_count = 0;  ///< int32 entries: ids and labels
  std::int64_t sample_count = 0;
  std::int64_t report_bytes = 0;
  std::array<char, 32> content_checksum{};  ///< of everything before the trailer
  std::array<char, 32> trailer_checksum{};  ///< of the fields above
};

/// The parts of a mapped file.
struct TokenFileView {
  std::span<const std::int32_t> tokens;
  std::span<const SampleRecord> records;
  RowReport report;
  std::string content_checksum;  ///< of all of the above, as it was written
};

/// Throws InvalidInput with the reason when the file is not complete or its trailer is damaged; with `check_content`
/// also when any other byte changed (reads the whole file, and calls `between` meanwhile as Checksum::add does).
TokenFileView view_token_file(const MappedFile& mapped, bool check_content, const std::function<void()>& between = {});

/// Writes a token file; samples come in order. Nothing appears under the final name before commit().
class TokenFileWriter {
 public:
  explicit TokenFileWriter(const std::filesystem::path& file) : writer_(file) {}

  /// `tokens`: for each record its ids, then its labels; records[i].begin counts from the start of `tokens`.
  void append(std::span<const std::int32_t> tokens, std::span<const SampleRecord> records);
  void commit(const RowReport& report);

 private:
  void write(const void* data, std::size_t bytes);

  AtomicFileWriter writer_;
  Checksum checksum_;
  std::int64_t token_count_ = 0;
  std::vector<SampleRecord> records_;
};

}  // namespace skrull

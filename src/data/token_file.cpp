#include "token_file.h"

#include <algorithm>
#include <cstring>

#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/core/narrow.h"

namespace skrull {
namespace {

std::array<char, 32> digits_of(const Checksum& checksum) {
  std::array<char, 32> digits{};
  const std::string text = checksum.hex();
  std::copy_n(text.begin(), std::min(text.size(), digits.size()), digits.begin());
  return digits;
}

std::array<char, 32> checksum_of(const void* data, std::size_t bytes, const std::function<void()>& between = {}) {
  Checksum checksum;
  checksum.add(data, bytes, between);
  return digits_of(checksum);
}

std::array<char, 32> trailer_checksum(const TokenFileTrailer& trailer) {
  return checksum_of(&trailer, offsetof(TokenFileTrailer, trailer_checksum));
}

std::array<char, 16> version_field() {
  std::array<char, 16> field{};
  static_assert(token_file_version.size() < field.size());
  std::copy(token_file_version.begin(), token_file_version.end(), field.begin());
  return field;
}

Json to_json(const RowCount& count) {
  return {count.rows, count.first.file, count.first.line};
}

RowCount count_from_json(const Json& json) {
  return {json.at(0), {json.at(1), json.at(2)}};
}

std::string report_to_json(const RowReport& report) {
  Json ignored = Json::array();
  for (const IgnoredColumn& column : report.ignored) ignored.push_back({column.name, to_json(column.count)});
  return Json{{"kept", to_json(report.kept)},
              {"truncated", to_json(report.truncated)},
              {"overlength", to_json(report.overlength)},
              {"untrained", to_json(report.untrained)},
              {"ignored", ignored}}
      .dump();
}

RowReport report_from_json(std::string_view text) {
  const Json json = Json::parse(text);
  RowReport report;
  report.kept = count_from_json(json.at("kept"));
  report.truncated = count_from_json(json.at("truncated"));
  report.overlength = count_from_json(json.at("overlength"));
  report.untrained = count_from_json(json.at("untrained"));
  for (const Json& column : json.at("ignored")) {
    report.ignored.push_back({column.at(0).get<std::string>(), count_from_json(column.at(1))});
  }
  return report;
}

}  // namespace

TokenFileView view_token_file(const MappedFile& mapped, bool check_content, const std::function<void()>& between) {
  const std::span<const char> bytes = mapped.bytes();
  TokenFileTrailer trailer;
  if (bytes.size() < sizeof trailer) throw_invalid_input("it has only {} bytes", bytes.size());
  std::memcpy(&trailer, bytes.data() + bytes.size() - sizeof trailer, sizeof trailer);
  if (trailer.version != version_field() || trailer.trailer_checksum != trailer_checksum(trailer)) {
    throw_invalid_input("its end is missing or damaged");
  }
  const std::size_t content_bytes = bytes.size() - sizeof trailer;
  const auto token_bytes = static_cast<std::size_t>(trailer.token_count) * sizeof(std::int32_t);
  const auto record_bytes = static_cast<std::size_t>(trailer.sample_count) * sizeof(SampleRecord);
  const auto report_bytes = static_cast<std::size_t>(trailer.report_bytes);
  if (token_bytes + record_bytes + report_bytes != content_bytes) {
    throw_invalid_input("it has {} bytes of content, expected {}", content_bytes,
                        token_bytes + record_bytes + report_bytes);
  }
  if (check_content && checksum_of(bytes.data(), content_bytes, between) != trailer.content_checksum) {
    throw_invalid_input("its content changed since it was written");
  }
  // Samples hold ids and as many labels, so the token part is a multiple of 8 bytes and the records are aligned.
  return {{reinterpret_cast<const std::int32_t*>(bytes.data()), static_cast<std::size_t>(trailer.token_count)},
          {reinterpret_cast<const SampleRecord*>(bytes.data() + token_bytes),
           static_cast<std::size_t>(trailer.sample_count)},
          report_from_json({bytes.data() + token_bytes + record_bytes, report_bytes}),
          std::string(trailer.content_checksum.begin(), trailer.content_checksum.end())};
}

void TokenFileWriter::append(std::span<const std::int32_t> tokens, std::span<const SampleRecord> records) {
  write(tokens.data(), tokens.size_bytes());
  for (SampleRecord record : records) {
    record.begin += token_count_;
    records_.push_back(record);
  }
  token_count_ += static_cast<std::int64_t>(tokens.size());
}

void TokenFileWriter::commit(const RowReport& report) {
  write(records_.data(), records_.size() * sizeof(SampleRecord));
  const std::string report_text = report_to_json(report);
  write(report_text.data(), report_text.size());
  TokenFileTrailer trailer{version_field(),
                           token_count_,
                           static_cast<std::int64_t>(records_.size()),
                           static_cast<std::int64_t>(report_text.size()),
                           digits_of(checksum_),
                           {}};
  trailer.trailer_checksum = trailer_checksum(trailer);
  writer_.write(&trailer, sizeof trailer);
  writer_.commit();
}

void TokenFileWriter::write(const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  checksum_.add(data, bytes);
  writer_.write(data, static_cast<std::int64_t>(bytes));
}

}  // namespace skrull

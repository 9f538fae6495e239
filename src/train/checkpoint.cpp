#include "skrull/train/checkpoint.h"

#include <charconv>
#include <sstream>

#include "skrull/core/checksum.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

constexpr const char* format_name = "skrull-checkpoint/1";
constexpr const char* checksum_key = "manifest_checksum";

OrderedJson to_json(const FileRecord& record) {
  return {{"name", record.name}, {"bytes", record.bytes}, {"xxh3_128", record.checksum}};
}

FileRecord record_from_json(const OrderedJson& json) {
  FileRecord record;
  record.name = json.at("name").get<std::string>();
  record.bytes = json.at("bytes").get<std::int64_t>();
  record.checksum = json.at("xxh3_128").get<std::string>();
  if (fs::path(record.name).filename() != record.name) {
    throw_invalid_input("the file name \"{}\" leads out of the folder", record.name);
  }
  return record;
}

std::string checksum_of(const OrderedJson& json) {
  Checksum checksum;
  checksum.add_field(json.dump());
  return checksum.hex();
}

}  // namespace

FileRecord record_file(const fs::path& folder, const std::string& name, const std::function<void()>& between) {
  const MappedFile mapped(folder / name);
  Checksum checksum;
  checksum.add(mapped.bytes().data(), mapped.bytes().size(), between);
  return {name, mapped.size(), checksum.hex()};
}

std::string records_to_text(const std::vector<FileRecord>& records) {
  OrderedJson list = OrderedJson::array();
  for (const FileRecord& record : records) list.push_back(to_json(record));
  return list.dump();
}

std::vector<FileRecord> records_from_text(const std::string& text) {
  std::vector<FileRecord> records;
  for (const OrderedJson& entry : OrderedJson::parse(text)) records.push_back(record_from_json(entry));
  return records;
}

void write_manifest(const fs::path& folder, const Manifest& manifest) {
  OrderedJson json = {{"format", format_name}, {"step", manifest.step}, {"resumable", manifest.resumable}};
  json["files"] = OrderedJson::parse(records_to_text(manifest.files));
  const std::string checksum = checksum_of(json);
  json[checksum_key] = checksum;
  write_json_file(folder / manifest_file, json);
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path file = folder / manifest_file;
  if (!fs::exists(file)) {
    throw_invalid_input("{}: no {}: this is no checkpoint, or it was not completed", folder.string(), manifest_file);
  }
  OrderedJson json = read_ordered_json_file(file);
  if (!json.is_object() || json.value("format", "") != format_name) {
    throw_invalid_input("{}: expected the format {}", file.string(), format_name);
  }
  try {
    const auto checksum = json.at(checksum_key).get<std::string>();
    json.erase(checksum_key);
    if (checksum_of(json) != checksum) throw_invalid_input("{}: it changed since it was written", file.string());
    return {json.at("step").get<std::int64_t>(), json.at("resumable").get<bool>(),
            records_from_text(json.at("files").dump())};
  } catch (const OrderedJson::exception& error) {
    throw_invalid_input("{}: {}", file.string(), error.what());
  }
}

std::string damage_of(const fs::path& folder, const FileRecord& record, const std::function<void()>& between) {
  const fs::path file = folder / record.name;
  std::error_code problem;
  const auto bytes = static_cast<std::int64_t>(fs::file_size(file, problem));
  if (problem) return fmt::format("{}: {}", file.string(), problem.message());
  if (bytes != record.bytes) {
    return fmt::format("{}: it has {} bytes, {} were written", file.string(), bytes, record.bytes);
  }
  try {
    if (record_file(folder, record.name, between).checksum == record.checksum) return "";
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return fmt::format("{}: its content changed since it was written", file.string());
}

}  // namespace skrull

#include "skrull/train/checkpoint.h"

#include <algorithm>
#include <map>
#include <utility>

#include "skrull/core/checksum.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

constexpr const char* format_name = "skrull-checkpoint/2";
/// The same with one checksum for every file.
constexpr const char* older_format = "skrull-checkpoint/1";
constexpr const char* checksum_key = "manifest_checksum";
constexpr const char* piece_checksum_key = "xxh3_128";

OrderedJson to_json(const FileRecord& record) {
  OrderedJson pieces = OrderedJson::array();
  for (const FilePiece& piece : record.pieces) {
    pieces.push_back({{"begin", piece.begin}, {"bytes", piece.bytes}, {piece_checksum_key, piece.checksum}});
  }
  return {{"name", record.name}, {"bytes", record.bytes()}, {"pieces", std::move(pieces)}};
}

FilePiece piece_from_json(const OrderedJson& json, std::int64_t begin) {
  return {begin, json.at("bytes").get<std::int64_t>(), json.at(piece_checksum_key).get<std::string>()};
}

FileRecord record_from_json(const OrderedJson& json) {
  FileRecord record;
  record.name = json.at("name").get<std::string>();
  if (fs::path(record.name).filename() != record.name) {
    throw_invalid_input("the file name \"{}\" leads out of the folder", record.name);
  }
  if (json.contains(piece_checksum_key)) {
    record.pieces.push_back(piece_from_json(json, 0));
    return record;
  }
  for (const OrderedJson& piece : json.at("pieces")) {
    record.pieces.push_back(piece_from_json(piece, piece.at("begin").get<std::int64_t>()));
  }
  return record;
}

/// Whether the pieces follow each other from the first byte on.
bool is_complete(const FileRecord& record) {
  std::int64_t end = 0;
  for (const FilePiece& piece : record.pieces) {
    if (piece.begin != end || piece.bytes < 0) return false;
    end = piece.end();
  }
  return !record.pieces.empty();
}

std::string checksum_of(const OrderedJson& json) {
  Checksum checksum;
  checksum.add_field(json.dump());
  return checksum.hex();
}

}  // namespace

FileRecord record_file(const fs::path& folder, const std::string& name) {
  return {name, pieces_of(folder / name)};
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

std::vector<FileRecord> join_records(const std::vector<FileRecord>& parts) {
  std::map<std::string, FileRecord> files;
  for (const FileRecord& part : parts) {
    FileRecord& file = files[part.name];
    file.name = part.name;
    file.pieces.insert(file.pieces.end(), part.pieces.begin(), part.pieces.end());
  }
  std::vector<FileRecord> joined;
  for (auto& [name, file] : files) {
    std::sort(file.pieces.begin(), file.pieces.end(),
              [](const FilePiece& a, const FilePiece& b) { return a.begin < b.begin; });
    require(is_complete(file), "{}: its pieces do not follow each other", name);
    joined.push_back(std::move(file));
  }
  return joined;
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
  const std::string format = json.is_object() ? json.value("format", "") : "";
  if (format != format_name && format != older_format) {
    throw_invalid_input(
        "{}: expected the format {} or {}, found \"{}\"; a newer version of skrull wrote it, or it is "
        "damaged",
        file.string(), format_name, older_format, format);
  }
  try {
    const auto checksum = json.at(checksum_key).get<std::string>();
    json.erase(checksum_key);
    if (checksum_of(json) != checksum) throw_invalid_input("{}: it changed since it was written", file.string());
    Manifest manifest = {json.at("step").get<std::int64_t>(), json.at("resumable").get<bool>(),
                         records_from_text(json.at("files").dump())};
    for (const FileRecord& record : manifest.files) {
      if (!is_complete(record)) throw_invalid_input("{}: pieces of {} are missing", file.string(), record.name);
    }
    return manifest;
  } catch (const OrderedJson::exception& error) {
    throw_invalid_input("{}: {}", file.string(), error.what());
  }
}

std::string wrong_size_of(const fs::path& folder, const FileRecord& record) {
  const fs::path file = folder / record.name;
  std::error_code problem;
  const auto bytes = static_cast<std::int64_t>(fs::file_size(file, problem));
  if (problem) return fmt::format("{}: {}", file.string(), problem.message());
  if (bytes == record.bytes()) return "";
  return fmt::format("{}: it has {} bytes, {} were written", file.string(), bytes, record.bytes());
}

std::string damage_of(const fs::path& folder, const FileRecord& record, const std::function<void()>& between) {
  const std::string wrong_size = wrong_size_of(folder, record);
  if (!wrong_size.empty()) return wrong_size;
  try {
    read_pieces(folder / record.name, record.pieces, [&](std::int64_t /*offset*/, std::span<const char> /*bytes*/) {
      if (between) between();
    });
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

}  // namespace skrull

#include "skrull/core/file_pieces.h"

#include <fstream>
#include <thread>

#include "skrull/core/checksum.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/rng.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;

namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

std::string random_bytes(std::int64_t count, std::uint64_t seed) {
  std::string bytes(static_cast<std::size_t>(count), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(random_bits(seed, i / 8) >> (i % 8 * 8));
  return bytes;
}

std::string checksum_of(const std::string& bytes) {
  Checksum checksum;
  checksum.add(bytes.data(), bytes.size());
  return checksum.hex();
}

void write_part(PieceWriter& writer, const std::string& content, std::int64_t begin, std::int64_t end,
                std::int64_t at_once) {
  writer.seek(begin);
  for (std::int64_t next = begin; next < end; next += at_once) {
    writer.write(content.data() + next, std::min(at_once, end - next));
  }
}

std::string read_back(const std::filesystem::path& file, const std::vector<FilePiece>& pieces) {
  std::string read;
  read_pieces(file, pieces,
              [&](std::int64_t /*offset*/, std::span<const char> bytes) { read.append(bytes.data(), bytes.size()); });
  return read;
}

/// What the call throws as E; "" when nothing.
template <class E, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void flip_bit(const std::filesystem::path& file, std::int64_t offset) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(offset);
  const char byte = static_cast<char>(stream.get() ^ 16);
  stream.seekp(offset);
  stream.put(byte);
}

}  // namespace

TEST_CASE("pieces of any size at any offset make the file, with their checksums", "[file_pieces]") {
  const test::TemporaryFolder folder;
  // Around the alignment of disks and the length of a step.
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{4095}, std::int64_t{4096}, std::int64_t{4097},
                                  8 * mebibyte - 1, 8 * mebibyte, 8 * mebibyte + 4097, 17 * mebibyte + 5}) {
    INFO("size " << size);
    const std::string content = random_bytes(size, 7);
    const std::filesystem::path file = folder / "file";
    PieceWriter writer(file);
    write_part(writer, content, 0, size, 70'001);
    const std::vector<FilePiece> pieces = writer.finish();
    REQUIRE(pieces.size() == 1);
    CHECK(pieces[0].begin == 0);
    CHECK(pieces[0].bytes == size);
    CHECK(pieces[0].checksum == checksum_of(content));
    CHECK(read_file(file) == content);
    CHECK(read_back(file, pieces) == content);
    CHECK(pieces_of(file).front().checksum == pieces[0].checksum);
    std::filesystem::remove(file);
  }
}

TEST_CASE("several writers share a file whose parts begin anywhere", "[file_pieces]") {
  const test::TemporaryFolder folder;
  const std::int64_t size = 20 * mebibyte + 3;
  const std::string content = random_bytes(size, 8);
  const std::filesystem::path file = folder / "file";
  reserve_file(file, size);
  CHECK(std::filesystem::file_size(file) == static_cast<std::uintmax_t>(size));
  // Borders inside of one aligned block, a part of one byte, and the last byte of all.
  const std::vector<std::int64_t> borders = {0, 10, 11, 4099, 9 * mebibyte + 1, 9 * mebibyte + 2, size - 1, size};
  std::vector<std::vector<FilePiece>> pieces(3);
  std::vector<std::thread> writers;
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    writers.emplace_back([&, rank] {
      PieceWriter writer(file);
      for (std::size_t i = rank; i + 1 < borders.size(); i += pieces.size()) {
        write_part(writer, content, borders[i], borders[i + 1], mebibyte);
      }
      pieces[rank] = writer.finish();
    });
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(read_file(file) == content);
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    const FilePiece& piece = pieces[i % 3].at(i / 3);
    CHECK(piece.begin == borders[i]);
    CHECK(piece.end() == borders[i + 1]);
    const auto bytes = static_cast<std::size_t>(piece.bytes);
    CHECK(piece.checksum == checksum_of(content.substr(static_cast<std::size_t>(piece.begin), bytes)));
    CHECK(read_back(file, {piece}) == content.substr(static_cast<std::size_t>(piece.begin), bytes));
  }
}

TEST_CASE("long runs are cut into pieces, of which one can be read alone", "[file_pieces]") {
  const test::TemporaryFolder folder;
  const std::int64_t begin = 5000;
  const std::int64_t size = begin + 2 * largest_piece_bytes + 77;
  const std::string content = random_bytes(size, 9);
  PieceWriter writer(folder / "file");
  write_part(writer, content, begin, size, 3 * mebibyte);
  const std::vector<FilePiece> pieces = writer.finish();
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[1].begin == begin + largest_piece_bytes);
  CHECK(pieces[1].bytes == largest_piece_bytes);
  CHECK(pieces[2].bytes == 77);
  for (const FilePiece& piece : pieces) {
    CHECK(read_back(folder / "file", {piece}) ==
          content.substr(static_cast<std::size_t>(piece.begin), static_cast<std::size_t>(piece.bytes)));
  }
  flip_bit(folder / "file", pieces[1].end() - 1);
  CHECK(read_back(folder / "file", {pieces[0], pieces[2]}).size() ==
        static_cast<std::size_t>(pieces[0].bytes + pieces[2].bytes));
  CHECK(contains(message_of<InvalidInput>([&] { read_pieces(folder / "file", pieces); }),
                 "file: its content changed since it was written"));
}

TEST_CASE("a file that is missing, short or can't be written is an error with its name", "[file_pieces]") {
  const test::TemporaryFolder folder;
  const std::vector<FilePiece> pieces = {{0, 10'000, "?"}};
  CHECK(contains(message_of<InvalidInput>([&] { read_pieces(folder / "none", pieces); }),
                 "none: can't be opened: No such file"));
  write_file_atomically(folder / "short", std::string(9'999, 'x'));
  CHECK(contains(message_of<InvalidInput>([&] { read_pieces(folder / "short", pieces); }),
                 "short: it has 9999 bytes, 10000 were written"));
  CHECK(contains(message_of<RunFailure>([&] { PieceWriter(folder / "none" / "file"); }),
                 "file: can't be created: No such file"));
  write_file_atomically(folder / "empty", "");
  CHECK(pieces_of(folder / "empty").size() == 1);
  CHECK_NOTHROW(read_pieces(folder / "empty", pieces_of(folder / "empty")));
}

#pragma once
// Large files in pieces: written and read in long steps past the page cache, with a checksum of every piece on the way.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace skrull {

/// Consecutive bytes of a file.
struct FilePiece {
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
  std::string checksum;  ///< XXH3-128
  std::int64_t end() const { return begin + bytes; }
};

/// No piece that a PieceWriter makes is larger.
inline constexpr std::int64_t largest_piece_bytes = std::int64_t{64} << 20;

/// Makes `file` with `bytes` bytes of zeros, and sets disk space aside for them where the file system can. Throws
/// RunFailure naming the file.
void reserve_file(const std::filesystem::path& file, std::int64_t bytes);

/// Writes parts of a file, which other writers may write other parts of at the same time. While the caller prepares
/// bytes, those before are written by a thread of its own. Every failure throws RunFailure naming the file, at the
/// latest from finish().
class PieceWriter {
 public:
  /// `file` is made when it is missing; what it holds stays.
  explicit PieceWriter(const std::filesystem::path& file);
  ~PieceWriter();
  PieceWriter(const PieceWriter&) = delete;
  PieceWriter& operator=(const PieceWriter&) = delete;

  /// What is written next begins at this byte of the file.
  void seek(std::int64_t offset);
  void write(const void* data, std::int64_t bytes);
  /// Waits until all is on the disk. The pieces that were written, in that order: neighbours written one after the
  /// other are one piece, up to largest_piece_bytes.
  std::vector<FilePiece> finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// Reads the pieces, and calls `use` with the bytes from `offset` of the file on, step by step and in order; meanwhile
/// the next ones are being read. Each byte is read once; a piece's checksum is compared when its last byte was used.
/// Throws InvalidInput naming the file: it can't be read, it is shorter than its pieces, or it changed.
void read_pieces(const std::filesystem::path& file, std::span<const FilePiece> pieces,
                 const std::function<void(std::int64_t offset, std::span<const char> bytes)>& use = {});

/// All of a file that is there, in pieces of largest_piece_bytes. Throws InvalidInput when it can't be read.
std::vector<FilePiece> pieces_of(const std::filesystem::path& file);

}  // namespace skrull

#include "skrull/core/file_pieces.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <future>
#include <optional>
#include <utility>

#include "skrull/core/checksum.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/raw_file.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

/// Long enough for a disk to work at its full rate, short enough for a few of them to stay near the processor.
constexpr std::int64_t step_bytes = std::int64_t{8} << 20;
/// Reads that are under way while bytes are used.
constexpr std::size_t steps_ahead = 2;

}  // namespace

/// Two buffers: one is filled while the other is being written.
class PieceWriter::State {
 public:
  explicit State(const fs::path& file) : file_(file, RawFile::Access::write) {}

  void seek(std::int64_t offset) {
    if (offset == end_) return;
    close_piece();
    hand_over();
    // As far from an aligned address as the offset from an aligned one.
    begin_ = end_ = piece_begin_ = offset;
  }

  void write(const char* data, std::int64_t bytes) {
    while (bytes > 0) {
      const std::int64_t used = end_ - aligned_down(begin_);
      const std::int64_t count = std::min({bytes, step_bytes - used, piece_begin_ + largest_piece_bytes - end_});
      std::memcpy(buffers_[filling_].data() + used, data, static_cast<std::size_t>(count));
      if (!checksum_) checksum_.emplace();
      checksum_->add(data, static_cast<std::size_t>(count));
      data += count;
      bytes -= count;
      end_ += count;
      if (end_ == piece_begin_ + largest_piece_bytes) close_piece();
      if (used + count == step_bytes) hand_over();
    }
  }

  std::vector<FilePiece> finish() {
    close_piece();
    hand_over();
    wait();
    file_.flush();
    return std::move(pieces_);
  }

 private:
  void close_piece() {
    if (end_ > piece_begin_) pieces_.push_back({piece_begin_, end_ - piece_begin_, checksum_->hex()});
    checksum_.reset();
    piece_begin_ = end_;
  }

  void hand_over() {
    if (end_ == begin_) return;
    wait();
    const char* data = buffers_[filling_].data() + (begin_ - aligned_down(begin_));
    written_ = std::async(std::launch::async,
                          [this, data, offset = begin_, bytes = end_ - begin_] { file_.write(data, bytes, offset); });
    filling_ = 1 - filling_;
    begin_ = end_;
  }

  void wait() {
    if (written_.valid()) written_.get();
  }

  RawFile file_;
  AlignedMemory buffers_[2] = {AlignedMemory(step_bytes), AlignedMemory(step_bytes)};
  std::size_t filling_ = 0;
  std::int64_t begin_ = 0;  ///< of the buffer being filled
  std::int64_t end_ = 0;
  std::int64_t piece_begin_ = 0;
  std::optional<Checksum> checksum_;
  std::vector<FilePiece> pieces_;
  std::future<void> written_;  // last: it is waited for before the rest goes
};

PieceWriter::PieceWriter(const fs::path& file) : state_(std::make_unique<State>(file)) {}
PieceWriter::~PieceWriter() = default;

void PieceWriter::seek(std::int64_t offset) {
  state_->seek(offset);
}

void PieceWriter::write(const void* data, std::int64_t bytes) {
  state_->write(static_cast<const char*>(data), bytes);
}

std::vector<FilePiece> PieceWriter::finish() {
  return state_->finish();
}

void reserve_file(const fs::path& file, std::int64_t bytes) {
  RawFile(file, RawFile::Access::write).reserve(bytes);
}

namespace {

/// A part of a piece that is read in one go.
struct ReadStep {
  std::int64_t begin;
  std::int64_t bytes;
  const FilePiece* piece;
  bool is_last;  ///< of its piece
};

std::vector<ReadStep> steps_of(std::span<const FilePiece> pieces) {
  std::vector<ReadStep> steps;
  for (const FilePiece& piece : pieces) {
    std::int64_t begin = piece.begin;
    do {
      // Steps end at aligned offsets, so that none but a piece's own borders are read twice.
      const std::int64_t end = std::min(piece.end(), aligned_down(begin) + step_bytes);
      steps.push_back({begin, end - begin, &piece, end == piece.end()});
      begin = end;
    } while (begin < piece.end());
  }
  return steps;
}

/// The bytes of a step, in `memory`.
std::span<const char> read_step(RawFile& file, const fs::path& name, const ReadStep& step,
                                const AlignedMemory& memory) {
  const std::int64_t begin = aligned_down(step.begin);
  const std::int64_t lead = step.begin - begin;
  const std::int64_t got = file.read(memory.data(), aligned_up(step.begin + step.bytes) - begin, begin);
  if (got < lead + step.bytes) {
    throw_invalid_input("{}: it has {} bytes, {} were written", name.string(), begin + got, step.piece->end());
  }
  return {memory.data() + lead, static_cast<std::size_t>(step.bytes)};
}

}  // namespace

void read_pieces(const fs::path& file, std::span<const FilePiece> pieces,
                 const std::function<void(std::int64_t, std::span<const char>)>& use) {
  RawFile raw(file, RawFile::Access::read);
  const std::vector<ReadStep> steps = steps_of(pieces);
  std::vector<AlignedMemory> buffers;
  buffers.reserve(steps_ahead + 1);
  for (std::size_t i = 0; i <= steps_ahead; ++i) buffers.emplace_back(step_bytes);
  std::deque<std::future<std::span<const char>>> ahead;
  const auto start = [&](std::size_t i) {
    if (i >= steps.size()) return;
    const AlignedMemory& memory = buffers[i % buffers.size()];
    ahead.push_back(std::async(std::launch::async, [&, i] { return read_step(raw, file, steps[i], memory); }));
  };
  for (std::size_t i = 0; i < steps_ahead; ++i) start(i);
  std::optional<Checksum> checksum;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::span<const char> bytes = ahead.front().get();
    ahead.pop_front();
    start(i + steps_ahead);
    if (!checksum) checksum.emplace();
    checksum->add(bytes.data(), bytes.size());
    if (use) use(steps[i].begin, bytes);
    if (!steps[i].is_last) continue;
    if (checksum->hex() != steps[i].piece->checksum) {
      throw_invalid_input("{}: its content changed since it was written", file.string());
    }
    checksum.reset();
  }
}

std::vector<FilePiece> pieces_of(const fs::path& file) {
  const MappedFile mapped(file);
  std::vector<FilePiece> pieces;
  for (std::int64_t begin = 0; begin < mapped.size() || pieces.empty(); begin += largest_piece_bytes) {
    const std::int64_t bytes = std::min(largest_piece_bytes, mapped.size() - begin);
    Checksum checksum;
    checksum.add(mapped.bytes().data() + begin, static_cast<std::size_t>(bytes));
    pieces.push_back({begin, bytes, checksum.hex()});
  }
  return pieces;
}

}  // namespace skrull

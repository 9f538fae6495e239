#include <algorithm>
#include <bit>
#include <map>

#include "kernel/elementwise.h"
#include "kernel/kernel.h"
#include "kernel/vector_access.h"
#include "ops/sequence_tables.h"
#include "skrull/core/error.h"

namespace skrull::attention {

namespace {

constexpr int threads = SequenceGroup::most;
constexpr std::int64_t table_alignment = 256;
constexpr std::int64_t shortest_group = 512;  ///< below it a call takes its start-up time whatever the length

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + table_alignment - 1) / table_alignment * table_alignment;
}

std::int64_t bytes_of_offsets(const SequenceGroup& group) {
  return aligned((group.slots + 1) * static_cast<std::int64_t>(sizeof(std::int64_t)));
}

struct Tensors {
  SequenceRows rows[SequenceTables::most_tensors];
  int count;
};

/// Block t writes the offsets of tensor t, the block behind them the lengths.
__global__ void __launch_bounds__(threads)
    fill_tables_kernel(const SequenceGroup group, const Tensors tensors, char* memory, std::int64_t offset_bytes) {
  const int tensor = static_cast<int>(blockIdx.x);
  char* table = memory + tensor * offset_bytes;
  const int last = group.count - 1;
  for (int i = static_cast<int>(threadIdx.x); i <= group.slots; i += threads) {
    const bool used = i < group.count;
    if (tensor < tensors.count) {
      const SequenceRows rows = tensors.rows[tensor];
      const int* begins = rows.gathered ? group.gathered : group.begins;
      const std::int64_t row = used ? begins[i] : begins[last] + group.lengths[last];
      reinterpret_cast<std::int64_t*>(table)[i] = row * rows.stride;
    } else if (i < group.slots) {
      reinterpret_cast<std::int32_t*>(table)[i] = used ? group.lengths[i] : 0;
    }
  }
}

struct AddGathered {
  static constexpr int width = elements_of_16_bytes<bf16>;
  template <int n>
  struct Piece {
    float x[n];
  };

  SequenceGroup group;
  Rows<const bf16> gathered;
  Rows<float> target;

  /// Of the packed rows, the one that is gathered row `row`.
  __device__ std::int64_t packed_row(std::int64_t row) const {
    int low = 0;
    int high = group.count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (group.gathered[middle] <= row)
        low = middle;
      else
        high = middle - 1;
    }
    return group.begins[low] + (row - group.gathered[low]);
  }
  template <int n>
  __device__ Piece<n> read(std::int64_t row, std::int64_t col) const {
    Piece<n> piece;
    Piece<n> old;
    load(gathered.at(row, col), piece.x);
    load<n>(target.at(packed_row(row), col), old.x);
#pragma unroll
    for (int i = 0; i < n; ++i) piece.x[i] += old.x[i];
    return piece;
  }
  template <int n>
  __device__ void write(std::int64_t row, std::int64_t col, const Piece<n>& piece) const {
    store(target.at(packed_row(row), col), piece.x);
  }
};

}  // namespace

std::vector<SequenceGroup> group_sequences(std::span<const AttentionSegment> segments, std::int64_t most_rows) {
  constexpr std::int64_t largest_row = std::int64_t{1} << 30;
  std::vector<AttentionSegment> ordered;
  for (const AttentionSegment& s : segments) {
    require(s.q_begin + s.q_len < largest_row, "attention: a segment ends at row {}, the CUDA kernels count to {}",
            s.q_begin + s.q_len, largest_row);
    if (s.q_len > 0) ordered.push_back(s);
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const AttentionSegment& a, const AttentionSegment& b) { return a.q_begin < b.q_begin; });
  std::vector<SequenceGroup> groups;
  std::map<std::int64_t, std::size_t> open;  // of a length, the group that sequences go to
  for (const AttentionSegment& s : ordered) {
    const auto length =
        static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max(s.q_len, shortest_group))));
    const auto [entry, is_new] = open.try_emplace(length, groups.size());
    const auto is_full = [&](const SequenceGroup& group) {
      return group.count == SequenceGroup::most || group.rows + s.q_len > most_rows;
    };
    if (is_new || is_full(groups[entry->second])) {
      entry->second = groups.size();
      groups.emplace_back().length = length;
    }
    SequenceGroup& group = groups[entry->second];
    const int slot = group.count++;
    group.begins[slot] = static_cast<int>(s.q_begin);
    group.gathered[slot] = group.rows;
    group.lengths[slot] = static_cast<int>(s.q_len);
    group.rows += group.lengths[slot];
    group.slots = static_cast<int>(std::bit_ceil(static_cast<unsigned>(group.count)));
  }
  return groups;
}

SequenceTables::SequenceTables(void* memory, const SequenceGroup& group, int tensors)
    : memory_(static_cast<char*>(memory)), offset_bytes_(bytes_of_offsets(group)), tensors_(tensors) {}

std::int64_t SequenceTables::bytes(const SequenceGroup& group, int tensors) {
  return tensors * bytes_of_offsets(group) + aligned(group.slots * static_cast<std::int64_t>(sizeof(std::int32_t)));
}

std::int64_t* SequenceTables::offsets(int tensor) const {
  return reinterpret_cast<std::int64_t*>(memory_ + tensor * offset_bytes_);
}

std::int32_t* SequenceTables::lengths() const {
  return reinterpret_cast<std::int32_t*>(memory_ + tensors_ * offset_bytes_);
}

void SequenceTables::fill(cudaStream_t stream, const SequenceGroup& group, std::span<const SequenceRows> rows) const {
  require(std::ssize(rows) == tensors_ && tensors_ <= most_tensors, "{} tensors in tables of {}, at most {}",
          rows.size(), tensors_, most_tensors);
  Tensors tensors{{}, tensors_};
  std::copy(rows.begin(), rows.end(), tensors.rows);
  launch(fill_tables_kernel, static_cast<unsigned>(tensors_ + 1), dim3(threads), 0, stream, group, tensors, memory_,
         offset_bytes_);
}

void add_gathered(cudaStream_t stream, const SequenceGroup& group, ConstTensorView gathered, TensorView target) {
  require(gathered.dtype() == DType::bfloat16 && target.dtype() == DType::float32 && gathered.rows() == group.rows &&
              gathered.cols() == target.cols(),
          "{} rows of {} columns of {} to add to {} columns of {}: expected the group's {} of bfloat16 and float32",
          gathered.rows(), gathered.cols(), name_of(gathered.dtype()), target.cols(), name_of(target.dtype()),
          group.rows);
  constexpr int width = AddGathered::width;
  launch_elementwise(stream, AddGathered{group, rows_of<bf16>(gathered), rows_of<float>(target)},
                     {gathered.rows(), gathered.cols()},
                     rows_in_pieces_of(width, gathered) && rows_in_pieces_of(width, target));
}

}  // namespace skrull::attention

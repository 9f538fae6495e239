#include <algorithm>
#include <bit>
#include <map>

#include "kernel/kernel.h"
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

struct RowStrides {
  std::int64_t of[SequenceTables::tensors];
};

/// Block t writes the offsets of tensor t, the block behind them the lengths.
__global__ void __launch_bounds__(threads)
    fill_tables_kernel(const SequenceGroup group, const RowStrides strides, char* memory, std::int64_t offset_bytes) {
  const int tensor = static_cast<int>(blockIdx.x);
  char* table = memory + tensor * offset_bytes;
  const int last = group.count - 1;
  for (int i = static_cast<int>(threadIdx.x); i <= group.slots; i += threads) {
    const bool used = i < group.count;
    if (tensor < SequenceTables::tensors) {
      const std::int64_t row = used ? group.begins[i] : group.begins[last] + group.lengths[last];
      reinterpret_cast<std::int64_t*>(table)[i] = row * strides.of[tensor];
    } else if (i < group.slots) {
      reinterpret_cast<std::int32_t*>(table)[i] = used ? group.lengths[i] : 0;
    }
  }
}

}  // namespace

std::vector<SequenceGroup> group_sequences(std::span<const AttentionSegment> segments) {
  constexpr std::int64_t most_rows = std::int64_t{1} << 30;
  std::vector<AttentionSegment> ordered;
  for (const AttentionSegment& s : segments) {
    require(s.q_begin + s.q_len < most_rows, "attention: a segment ends at row {}, the CUDA kernels count to {}",
            s.q_begin + s.q_len, most_rows);
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
    if (is_new || groups[entry->second].count == SequenceGroup::most) {
      entry->second = groups.size();
      groups.emplace_back().length = length;
    }
    SequenceGroup& group = groups[entry->second];
    const int slot = group.count++;
    group.begins[slot] = static_cast<int>(s.q_begin);
    group.lengths[slot] = static_cast<int>(s.q_len);
    group.slots = static_cast<int>(std::bit_ceil(static_cast<unsigned>(group.count)));
  }
  return groups;
}

SequenceTables::SequenceTables(void* memory, const SequenceGroup& group)
    : memory_(static_cast<char*>(memory)), offset_bytes_(bytes_of_offsets(group)) {}

std::int64_t SequenceTables::bytes(const SequenceGroup& group) {
  return tensors * bytes_of_offsets(group) + aligned(group.slots * static_cast<std::int64_t>(sizeof(std::int32_t)));
}

std::int64_t* SequenceTables::offsets(int tensor) const {
  return reinterpret_cast<std::int64_t*>(memory_ + tensor * offset_bytes_);
}

std::int32_t* SequenceTables::lengths() const {
  return reinterpret_cast<std::int32_t*>(memory_ + tensors * offset_bytes_);
}

void SequenceTables::fill(cudaStream_t stream, const SequenceGroup& group,
                          const std::array<std::int64_t, tensors>& row_strides) const {
  RowStrides strides{};
  std::copy(row_strides.begin(), row_strides.end(), strides.of);
  launch(fill_tables_kernel, tensors + 1, dim3(threads), 0, stream, group, strides, memory_, offset_bytes_);
}

}  // namespace skrull::attention

#include "skrull/comm/collective_checks.h"

#include "reduction.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

void check_parts(const char* operation, ConstTensorView whole, ConstTensorView part, const CountedBuffer& counts) {
  require(whole.contiguous() && part.contiguous(), "{} needs contiguous memory", operation);
  require(whole.dtype() == part.dtype(), "{} between {} and {}", operation, name_of(whole.dtype()),
          name_of(part.dtype()));
  require(whole.elements() == counts.total && part.elements() == counts.own_count,
          "{}: the counts say {} elements in all and {} here, the buffers hold {} and {}", operation, counts.total,
          counts.own_count, whole.elements(), part.elements());
}

/// The part lies outside the whole, or in it at its place.
void check_place(const char* operation, ConstTensorView whole, ConstTensorView part, const CountedBuffer& counts) {
  const std::int64_t element = size_of(whole.dtype());
  const auto* first = static_cast<const char*>(whole.data());
  const auto* own = static_cast<const char*>(part.data());
  const bool outside = own + counts.own_count * element <= first || own >= first + counts.total * element;
  require(counts.own_count == 0 || outside || own == first + counts.own_begin * element,
          "{}: this rank's part lies inside the whole, but not at its place", operation);
}

}  // namespace

void check_reduce(ConstTensorView buffer) {
  require(buffer.contiguous(), "a reduction needs contiguous memory, not {} rows of {} with stride {}", buffer.rows(),
          buffer.cols(), buffer.row_stride());
  require_reducible(buffer.dtype());
}

CountedBuffer check_counts(std::span<const std::int64_t> counts, int rank, int size) {
  require(static_cast<int>(counts.size()) == size, "{} counts for {} ranks", counts.size(), size);
  CountedBuffer result;
  for (int i = 0; i < size; ++i) {
    const std::int64_t count = counts[static_cast<std::size_t>(i)];
    require(count >= 0, "count {} of rank {} is negative", count, i);
    if (i == rank) {
      result.own_begin = result.total;
      result.own_count = count;
    }
    result.total += count;
  }
  return result;
}

CountedBuffer check_reduce_scatter(ConstTensorView send, ConstTensorView receive, std::span<const std::int64_t> counts,
                                   int rank, int size) {
  const CountedBuffer result = check_counts(counts, rank, size);
  check_parts("reduce-scatter", send, receive, result);
  check_place("reduce-scatter", send, receive, result);
  require_reducible(send.dtype());
  return result;
}

CountedBuffer check_all_gather(ConstTensorView send, ConstTensorView receive, std::span<const std::int64_t> counts,
                               int rank, int size) {
  const CountedBuffer result = check_counts(counts, rank, size);
  check_parts("all-gather", receive, send, result);
  check_place("all-gather", receive, send, result);
  return result;
}

void check_broadcast(ConstTensorView buffer, int root, int size) {
  require(buffer.contiguous(), "broadcast needs contiguous memory");
  require(root >= 0 && root < size, "broadcast from rank {} of {}", root, size);
}

void check_exchange(std::span<const Transfer> transfers, int size) {
  for (const Transfer& transfer : transfers) {
    require(transfer.peer >= 0 && transfer.peer < size, "transfer with rank {} of {}", transfer.peer, size);
    require(transfer.bytes >= 0, "transfer of {} bytes", transfer.bytes);
  }
}

}  // namespace skrull

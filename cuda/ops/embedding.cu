// Gradient of the embedding: rows of the table are summed in token order, without atomic additions.
//
// The tokens are first dealt into buckets by id modulo the number of buckets, each in token order. Then a block for
// every place of that order looks back in its bucket: when its id was there before, it has nothing to do; otherwise it
// adds the gradients of all later tokens with its id.

#include <algorithm>

#include "device/cuda_stream.h"
#include "kernel/reduction.h"
#include "kernel/rows.h"
#include "kernel/vector_access.h"
#include "ops/cuda_ops.h"
#include "skrull/core/narrow.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

constexpr int bucket_threads = 256;
constexpr int sum_threads = 128;

struct TokenOfId {
  std::int32_t id;
  std::int32_t token;
};

/// Tokens by bucket, in token order within each.
struct Buckets {
  int count;
  int tokens;
  TokenOfId* order;  ///< [tokens]
  int* begin;        ///< [count + 1]

  __device__ int of(std::int32_t id) const {
    return static_cast<int>(static_cast<std::uint32_t>(id) % static_cast<std::uint32_t>(count));
  }
};

/// Number of set flags in threads before this one, and in all of the block. Every thread must call.
struct Rank {
  int before;
  int all;
};
template <int threads>
__device__ Rank rank_in_block(bool flag) {
  constexpr int warps = threads / warp_threads;
  SHARED_ARRAY(int, counts, warps);
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const int warp = static_cast<int>(threadIdx.x) / warp_threads;
  const unsigned flags = __ballot_sync(0xFFFFFFFFU, flag);
  if (lane == 0) counts[warp] = __popc(flags);
  __syncthreads();
  Rank rank{__popc(flags & ((1U << static_cast<unsigned>(lane)) - 1U)), 0};
#pragma unroll
  for (int i = 0; i < warps; ++i) {
    if (i < warp) rank.before += counts[i];
    rank.all += counts[i];
  }
  __syncthreads();  // the next call writes the counts
  return rank;
}

/// A block for each bucket: counts the tokens of the buckets before it, then writes its own.
__global__ void __launch_bounds__(bucket_threads) deal_kernel(const std::int32_t* ids, const Buckets buckets) {
  const int bucket = static_cast<int>(blockIdx.x);
  int before = 0;
  for (int token = static_cast<int>(threadIdx.x); token < buckets.tokens; token += bucket_threads) {
    before += buckets.of(ids[token]) < bucket ? 1 : 0;
  }
  int place = block_reduce<bucket_threads>(before, Sum{});
  if (threadIdx.x == 0) buckets.begin[bucket] = place;
  for (int first = 0; first < buckets.tokens; first += bucket_threads) {
    const int token = first + static_cast<int>(threadIdx.x);
    const std::int32_t id = token < buckets.tokens ? ids[token] : 0;
    const bool mine = token < buckets.tokens && buckets.of(id) == bucket;
    const Rank rank = rank_in_block<bucket_threads>(mine);
    if (mine) buckets.order[place + rank.before] = {id, token};
    place += rank.all;
  }
  if (bucket == buckets.count - 1 && threadIdx.x == 0) buckets.begin[buckets.count] = place;
}

/// Whether `id` stands in order[begin, end). Every thread of the block must call, with the same arguments.
__device__ bool is_in(const TokenOfId* order, int begin, int end, std::int32_t id) {
  // From the end: a frequent id is found soon.
  for (int last = end; last > begin; last -= sum_threads) {
    const int place = last - 1 - static_cast<int>(threadIdx.x);
    const bool found = place >= begin && order[place].id == id;
    if (rank_in_block<sum_threads>(found).all > 0) return true;
  }
  return false;
}

/// A block for each place of the order (x) and n x sum_threads columns (y).
template <class T, int n>
__global__ void __launch_bounds__(sum_threads)
    sum_kernel(const Buckets buckets, const Rows<const T> dout, const Rows<float> dtable, const std::int64_t cols) {
  SHARED_ARRAY(int, tokens, sum_threads);
  const int place = static_cast<int>(blockIdx.x);
  const std::int32_t id = buckets.order[place].id;
  const int bucket = buckets.of(id);
  if (is_in(buckets.order, buckets.begin[bucket], place, id)) return;

  const int end = buckets.begin[bucket + 1];
  const std::int64_t col = (std::int64_t{blockIdx.y} * sum_threads + threadIdx.x) * n;
  const bool inside = col < cols;
  float sum[n] = {};
  if (inside) load<n>(dtable.at(id, col), sum);
  for (int first = place; first < end; first += sum_threads) {
    const int candidate = first + static_cast<int>(threadIdx.x);
    const TokenOfId entry = candidate < end ? buckets.order[candidate] : TokenOfId{-1, 0};
    const Rank rank = rank_in_block<sum_threads>(entry.id == id);
    if (entry.id == id) tokens[rank.before] = entry.token;
    __syncthreads();
    if (inside) {
#pragma unroll 2
      for (int i = 0; i < rank.all; ++i) {
        float values[n];
        load(dout.at(tokens[i], col), values);
#pragma unroll
        for (int e = 0; e < n; ++e) sum[e] += values[e];
      }
    }
    __syncthreads();  // the next round writes the tokens
  }
  if (inside) store(dtable.at(id, col), sum);
}

template <class T, int n>
void launch_sums(cudaStream_t stream, const Buckets& buckets, const ConstTensorView& dout, const TensorView& dtable) {
  constexpr std::int64_t columns_of_block = sum_threads * n;
  const dim3 grid(static_cast<unsigned>(buckets.tokens),
                  static_cast<unsigned>(narrow<std::int32_t>((dout.cols() + columns_of_block - 1) / columns_of_block)));
  launch(sum_kernel<T, n>, grid, dim3(sum_threads), 0, stream, buckets, rows_of<T>(dout), rows_of<float>(dtable),
         dout.cols());
}

}  // namespace

void CudaOps::embedding_backward(Stream& stream, ConstTensorView ids, ConstTensorView dout, TensorView dtable) {
  check_embedding_backward(ids, dout, dtable);
  if (dout.empty()) return;
  constexpr int most_buckets = 512;
  constexpr int tokens_of_bucket = 64;
  Buckets buckets{};
  buckets.tokens = narrow<std::int32_t>(dout.rows());
  buckets.count = std::min(most_buckets, buckets.tokens / tokens_of_bucket + 1);
  const auto order_bytes = std::int64_t{buckets.tokens} * static_cast<std::int64_t>(sizeof(TokenOfId));
  auto* scratch = static_cast<char*>(
      scratch_.get(stream, order_bytes + (most_buckets + 1) * static_cast<std::int64_t>(sizeof(int))));
  buckets.order = reinterpret_cast<TokenOfId*>(scratch);
  buckets.begin = reinterpret_cast<int*>(scratch + order_bytes);
  const cudaStream_t queue = cuda_stream(stream);
  launch(deal_kernel, static_cast<unsigned>(buckets.count), dim3(bucket_threads), 0, queue,
         static_cast<const std::int32_t*>(ids.data()), buckets);
  with_element(dout.dtype(), [&]<class T>(std::type_identity<T>) {
    constexpr int width = elements_of_16_bytes<T>;
    if (rows_in_pieces_of(width, dout) && rows_in_pieces_of(width, dtable) && dout.cols() % width == 0) {
      launch_sums<T, width>(queue, buckets, dout, dtable);
    } else {
      launch_sums<T, 1>(queue, buckets, dout, dtable);
    }
  });
}

}  // namespace skrull

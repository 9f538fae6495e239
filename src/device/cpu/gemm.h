#pragma once
// Matrix products of bfloat16 through oneDNN's matmul primitives, which are made per shape and kept.

#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>

#include "skrull/core/dtype.h"
#include "skrull/core/recently_used.h"

namespace skrull {

/// What a compiled product depends on: C[m,n] = op(A) op(B), leading dimensions in elements.
struct GemmKey {
  std::int64_t m, n, k;
  std::int64_t lda, ldb, ldc;
  DType c_dtype;
  bool transpose_a, transpose_b, accumulate, bias;
  int threads;
  auto operator<=>(const GemmKey&) const = default;  // NOLINT(modernize-use-nullptr): no pointer here
};

/// A compiled product.
struct CompiledGemm;

/// The products used last, at most `capacity` of them. Any thread may call.
class GemmCache {
 public:
  explicit GemmCache(std::size_t capacity = 256) : gemms_(capacity) {}

  /// The product for `key`, made where it is not there yet. Null when oneDNN has none for this machine.
  std::shared_ptr<const CompiledGemm> get(const GemmKey& key);

 private:
  std::mutex mutex_;
  RecentlyUsed<GemmKey, std::shared_ptr<const CompiledGemm>> gemms_;
};

}  // namespace skrull

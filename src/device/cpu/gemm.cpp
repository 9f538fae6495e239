#include "cpu/gemm.h"

#include <cstdlib>
#include <dnnl.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cpu/cpu_ops.h"
#include "cpu/kernel.h"
#include "skrull/device/gemm_sizes.h"

namespace skrull {

namespace {

/// A product with its sizes.
struct Product {
  Gemm gemm;
  std::int64_t m, n, k;
};

Product checked(const Gemm& gemm) {
  const GemmSizes sizes = check_gemm(gemm);
  return {gemm, sizes.m, sizes.n, sizes.k};
}

/// C = bias on every row (or 0) + what C held (when accumulating) + sums(row)[column] for one block of C.
template <class C, class Sums>
void finish_block(const Product& p, std::int64_t row0, std::int64_t rows, std::int64_t col0, std::int64_t cols,
                  const Sums& sums) {
  const Gemm& g = p.gemm;
  with_dtype(g.a.dtype(), [&]<class B>(std::type_identity<B>) {
    const B* bias = g.bias ? static_cast<const B*>(g.bias.data()) + col0 : nullptr;
    parallel_ranges(rows, cols, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        C* c = row_of<C>(g.c, row0 + i) + col0;
        const float* sum = sums(i);
        for (std::int64_t j = 0; j < cols; ++j) {
          float value = sum != nullptr ? sum[j] : 0.0F;
          if (g.accumulate) value += static_cast<float>(c[j]);
          if (bias != nullptr) value += static_cast<float>(bias[j]);
          c[j] = static_cast<C>(value);
        }
      }
    });
  });
}

/// A product whose sums are all empty.
void run_without_terms(const Product& p) {
  with_dtype(p.gemm.c.dtype(), [&]<class C>(std::type_identity<C>) {
    finish_block<C>(p, 0, p.m, 0, p.n, [](std::int64_t) { return static_cast<const float*>(nullptr); });
  });
}

/// op(A) op(B) + beta C in fp32.
void multiply(const Product& p, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
              float* c, std::int64_t ldc) {
  const dnnl::status status = dnnl::sgemm(p.gemm.transpose_a ? 'T' : 'N', p.gemm.transpose_b ? 'T' : 'N', p.m, p.n, p.k,
                                          1.0F, a, lda, b, ldb, beta, c, ldc);
  require(status == dnnl::status::success, "oneDNN's sgemm of {} x {} x {} failed with status {}", p.m, p.n, p.k,
          static_cast<int>(status));
}

void run_float32(const Product& p) {
  const Gemm& g = p.gemm;
  if (g.bias) run_without_terms(p);
  multiply(p, static_cast<const float*>(g.a.data()), g.a.row_stride(), static_cast<const float*>(g.b.data()),
           g.b.row_stride(), g.accumulate || g.bias ? 1.0F : 0.0F, static_cast<float*>(g.c.data()), g.c.row_stride());
}

/// Rows and columns [row, row + rows) x [col, col + cols) of a bfloat16 matrix, as a contiguous fp32 matrix.
void widen(const ConstTensorView& matrix, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols,
           float* out) {
  parallel_ranges(rows, cols, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const bfloat16* from = row_of<bfloat16>(matrix, row + i) + col;
      for (std::int64_t j = 0; j < cols; ++j) out[i * cols + j] = static_cast<float>(from[j]);
    }
  });
}

/// A bfloat16 product that oneDNN doesn't offer (on a machine without bfloat16 instructions) or gets wrong: blocks are
/// widened and multiplied in fp32.
void run_widened(const Product& p) {
  constexpr std::int64_t block_m = 512;
  constexpr std::int64_t block_n = 1024;
  constexpr std::int64_t block_k = 1024;
  const Gemm& g = p.gemm;
  std::vector<float> a(static_cast<std::size_t>(std::min(p.m, block_m) * std::min(p.k, block_k)));
  std::vector<float> b(static_cast<std::size_t>(std::min(p.k, block_k) * std::min(p.n, block_n)));
  std::vector<float> c(static_cast<std::size_t>(std::min(p.m, block_m) * std::min(p.n, block_n)));
  for (std::int64_t n0 = 0; n0 < p.n; n0 += block_n) {
    for (std::int64_t m0 = 0; m0 < p.m; m0 += block_m) {
      Product block = p;
      block.m = std::min(block_m, p.m - m0);
      block.n = std::min(block_n, p.n - n0);
      for (std::int64_t k0 = 0; k0 < p.k; k0 += block_k) {
        block.k = std::min(block_k, p.k - k0);
        if (g.transpose_a) {
          widen(g.a, k0, block.k, m0, block.m, a.data());
        } else {
          widen(g.a, m0, block.m, k0, block.k, a.data());
        }
        if (g.transpose_b) {
          widen(g.b, n0, block.n, k0, block.k, b.data());
        } else {
          widen(g.b, k0, block.k, n0, block.n, b.data());
        }
        multiply(block, a.data(), g.transpose_a ? block.m : block.k, b.data(), g.transpose_b ? block.k : block.n,
                 k0 == 0 ? 0.0F : 1.0F, c.data(), block.n);
      }
      with_dtype(g.c.dtype(), [&]<class C>(std::type_identity<C>) {
        finish_block<C>(p, m0, block.m, n0, block.n, [&](std::int64_t i) { return c.data() + i * block.n; });
      });
    }
  }
}

using Memory = dnnl::memory;

Memory::data_type data_type(DType dtype) {
  return dtype == DType::bfloat16 ? Memory::data_type::bf16 : Memory::data_type::f32;
}

/// rows x cols of op(matrix), where the matrix itself is row-major with leading dimension `ld`.
Memory::desc describe(std::int64_t rows, std::int64_t cols, DType dtype, bool transposed, std::int64_t ld) {
  return {{rows, cols}, data_type(dtype), transposed ? Memory::dims{1, ld} : Memory::dims{ld, 1}};
}

/// At least `bytes` bytes of 64-byte aligned memory that the calling thread keeps; what it held before is lost.
void* thread_scratch(std::size_t bytes) {
  constexpr std::size_t alignment = 64;
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  thread_local std::unique_ptr<void, Free> scratch;
  thread_local std::size_t capacity = 0;
  if (bytes > capacity) {
    capacity = 0;
    scratch.reset();
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    scratch.reset(std::aligned_alloc(alignment, rounded));
    require(scratch != nullptr, "out of memory: a matrix product needs {} bytes of scratch memory", rounded);
    capacity = rounded;
  }
  return scratch.get();  // NOLINT(clang-analyzer-unix.Malloc): reset() put new memory there
}

}  // namespace

/// Has no state of its own, so any thread may run it: oneDNN's own scratch memory would belong to the thread that
/// compiled it.
struct CompiledGemm {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  Memory::desc a, b, c, bias;

  void run(const Gemm& g) const {
    const auto memory = [this](const Memory::desc& layout, const ConstTensorView& view) {
      return Memory(layout, engine, const_cast<void*>(view.data()));  // oneDNN's handles are mutable, arguments are not
    };
    std::unordered_map<int, Memory> arguments{
        {DNNL_ARG_SRC, memory(a, g.a)}, {DNNL_ARG_WEIGHTS, memory(b, g.b)}, {DNNL_ARG_DST, memory(c, g.c)}};
    if (g.bias) arguments.emplace(DNNL_ARG_BIAS, memory(bias, g.bias));
    const Memory::desc scratch = description.scratchpad_desc();
    arguments.emplace(DNNL_ARG_SCRATCHPAD, Memory(scratch, engine, thread_scratch(scratch.get_size())));
    dnnl::stream stream(engine);
    primitive.execute(stream, arguments);
    stream.wait();
  }
};

namespace {

std::shared_ptr<const CompiledGemm> compile(const GemmKey& key) {
  auto gemm = std::make_shared<CompiledGemm>();
  gemm->a = describe(key.m, key.k, DType::bfloat16, key.transpose_a, key.lda);
  gemm->b = describe(key.k, key.n, DType::bfloat16, key.transpose_b, key.ldb);
  gemm->c = describe(key.m, key.n, key.c_dtype, false, key.ldc);
  if (key.bias) gemm->bias = describe(1, key.n, DType::bfloat16, false, key.n);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops after;
    after.append_sum(1.0F);
    attributes.set_post_ops(after);
  }
  constexpr bool allow_empty = true;
#if DNNL_VERSION_MAJOR < 3
  const auto operation = key.bias ? dnnl::matmul::desc(gemm->a, gemm->b, gemm->bias, gemm->c)
                                  : dnnl::matmul::desc(gemm->a, gemm->b, gemm->c);
  gemm->description = dnnl::matmul::primitive_desc(operation, attributes, gemm->engine, allow_empty);
#else
  gemm->description =
      key.bias
          ? dnnl::matmul::primitive_desc(gemm->engine, gemm->a, gemm->b, gemm->bias, gemm->c, attributes, allow_empty)
          : dnnl::matmul::primitive_desc(gemm->engine, gemm->a, gemm->b, gemm->c, attributes, allow_empty);
#endif
  if (!gemm->description) return nullptr;
  gemm->primitive = dnnl::matmul(gemm->description);
  return gemm;
}

}  // namespace

std::shared_ptr<const CompiledGemm> GemmCache::get(const GemmKey& key) {
  const std::lock_guard lock(mutex_);
  return gemms_.get(key, [&] { return compile(key); });
}

namespace {

/// One column cut out of a wider matrix. oneDNN 3.7's bfloat16 products take the elements of such a vector for
/// neighbours in memory.
bool is_strided_column(const ConstTensorView& matrix) {
  return matrix.cols() == 1 && matrix.rows() > 1 && matrix.row_stride() > 1;
}

}  // namespace

void CpuOps::gemm(Stream& stream, const Gemm& gemm) {
  const Product product = checked(gemm);
  run(stream, [this, product] {
    const auto& [g, m, n, k] = product;
    if (m == 0 || n == 0) return;
    if (k == 0) {
      run_without_terms(product);
    } else if (g.a.dtype() == DType::float32) {
      run_float32(product);
    } else if (is_strided_column(g.a) || is_strided_column(g.b) || is_strided_column(g.c)) {
      run_widened(product);
    } else {
      const GemmKey key{.m = m,
                        .n = n,
                        .k = k,
                        .lda = g.a.row_stride(),
                        .ldb = g.b.row_stride(),
                        .ldc = g.c.row_stride(),
                        .c_dtype = g.c.dtype(),
                        .transpose_a = g.transpose_a,
                        .transpose_b = g.transpose_b,
                        .accumulate = g.accumulate,
                        .bias = static_cast<bool>(g.bias),
                        .threads = omp_get_max_threads()};
      if (const auto compiled = gemm_cache_->get(key)) {
        compiled->run(g);
      } else {
        run_widened(product);
      }
    }
  });
}

}  // namespace skrull

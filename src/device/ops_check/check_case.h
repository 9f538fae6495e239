#pragma once
// One case of one operation: operands go to the device, the operation runs twice, and every result is compared with
// what its definition says in fp64.

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "ops_check/host_matrix.h"
#include "skrull/device/ops.h"
#include "skrull/device/ops_check.h"

namespace skrull {

/// Unit roundoff: the largest relative error of rounding to a dtype, 0 of whole numbers.
double rounding_of(DType dtype);

/// Error of a sum of that many terms in fp32 in any order, where the terms' magnitudes add up to `size`: u n at most;
/// beyond a few terms roundings go either way, and grow like the square root of their number (Higham, Mary 2019).
double sum_error(std::int64_t terms, double size);

/// Error of so many roundings to fp32 of values of that size.
double float_error(double roundings, double size);

/// What an element must be: its value, and how far off it may be before it is rounded to its dtype.
struct Expected {
  double value = 0;
  double error = 0;
};

/// What the checks of one operation share.
struct CheckContext {
  Device& device;
  std::string operation;
  DType dtype;  ///< of activations and weights
  bool small_shapes_only;
  bool same_bits;
  std::vector<OpCheck>& checks;
};

class CheckCase {
 public:
  class Result {
   public:
    TensorView view() { return view_; }
    /// After the run.
    const HostMatrix& values() const { return values_; }
    double operator()(std::int64_t row, std::int64_t col) const { return values_(row, col); }

   private:
    friend class CheckCase;
    Result(std::string name, const HostMatrix& before, Device& device);

    std::string name_;
    HostMatrix before_;
    HostMatrix values_;
    Buffer memory_;
    TensorView view_;
    std::string problem_;
  };

  CheckCase(CheckContext& context, std::string shape) : context_(context), shape_(std::move(shape)) {}

  /// An operand that the operation reads.
  ConstTensorView input(const HostMatrix& values);
  /// An operand that it writes, and what it holds before.
  Result& result(std::string name, const HostMatrix& before);

  /// Runs `operation` twice from the same state. What it throws fails every result.
  void run(const std::function<void(Ops& ops, Stream& stream)>& operation);

  /// Compares a result of the run, element by element, and notes the outcome.
  void expect(const Result& result, const std::function<Expected(std::int64_t row, std::int64_t col)>& expected);

 private:
  struct Input {
    HostMatrix values;
    Buffer memory;
  };

  Device& device() { return context_.device; }
  void upload(const HostMatrix& values, const Buffer& memory);
  HostMatrix download(const HostMatrix& like, const Buffer& memory);
  void run_twice(const std::function<void(Ops& ops, Stream& stream)>& operation);
  void fail(const std::string& problem);

  CheckContext& context_;
  std::string shape_;
  std::deque<Input> inputs_;
  std::deque<Result> results_;
};

/// "7 x 67", "7 x 67, 5 apart, off by 1".
std::string describe_layout(std::int64_t rows, std::int64_t cols, std::int64_t padding, std::int64_t offset);

/// Rows, columns, and where they lie: a view may be any part of a matrix.
struct CheckLayout {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t padding = 0;
  std::int64_t offset = 0;

  std::string describe() const { return describe_layout(rows, cols, padding, offset); }
  HostMatrix random(DType dtype, std::string_view name, double scale = 1.0) const {
    return HostMatrix::random(dtype, rows, cols, name, scale, padding, offset);
  }
};

/// No rows, no columns, one of each, ragged tails, rows that are and are not aligned, and (without small_shapes_only)
/// enough for several blocks of threads.
std::vector<CheckLayout> check_layouts(const CheckContext& context);

// One function for each operation, in the files of their kinds.
void check_gemm(CheckContext& context);
void check_bias_backward(CheckContext& context);
void check_embedding_forward(CheckContext& context);
void check_embedding_backward(CheckContext& context);
void check_rms_norm_forward(CheckContext& context);
void check_rms_norm_backward(CheckContext& context);
void check_rope_table(CheckContext& context);
void check_rope(CheckContext& context);
void check_attention_forward(CheckContext& context);
void check_attention_merge(CheckContext& context);
void check_attention_delta(CheckContext& context);
void check_attention_backward(CheckContext& context);
void check_swiglu_forward(CheckContext& context);
void check_swiglu_backward(CheckContext& context);
void check_cross_entropy(CheckContext& context);
void check_adamw(CheckContext& context);
void check_sum_of_squares(CheckContext& context);
void check_fill_zero(CheckContext& context);
void check_cast(CheckContext& context);
void check_add(CheckContext& context);
void check_scale(CheckContext& context);
void check_gather_rows(CheckContext& context);
void check_scatter_rows(CheckContext& context);

}  // namespace skrull

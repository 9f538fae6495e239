#include "skrull/core/tensor.h"

#include <vector>

#include "skrull/core/narrow.h"
#include "support/catch.h"

using namespace skrull;

TEST_CASE("slices of a view point at the right elements") {
  std::vector<float> data(24);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const TensorView view(data.data(), DType::float32, 4, 6);
  const TensorView columns = view.slice_rows(1, 2).slice_cols(2, 3);
  CHECK(*columns.as<float>() == 8.0F);
  CHECK(columns.row_stride() == 6);
  CHECK_FALSE(columns.contiguous());
  CHECK_THROWS_AS(view.slice_rows(3, 2), RunFailure);
  CHECK_THROWS_AS(view.as<bfloat16>(), RunFailure);
  CHECK_THROWS_AS(columns.reshape(1, 6), RunFailure);
  CHECK(ConstTensorView(view).reshape(2, 12).rows() == 2);
}

TEST_CASE("narrowing and products are checked") {
  CHECK(narrow<std::int32_t>(std::int64_t{2147483647}) == 2147483647);
  CHECK_THROWS_AS(narrow<std::int32_t>(std::int64_t{131072} * 152064), RunFailure);
  CHECK_THROWS_AS(narrow<std::uint32_t>(std::int64_t{-1}), RunFailure);
  CHECK_THROWS_AS(checked_multiply(std::int64_t{1} << 40, std::int64_t{1} << 40), RunFailure);
}

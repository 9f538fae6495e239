// Rows of the embedding table, and their gradients.

#include <cstring>
#include <vector>

#include "cpu/cpu_ops.h"
#include "cpu/kernel.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

void CpuOps::embedding_forward(Stream& stream, ConstTensorView ids, ConstTensorView table, TensorView out) {
  gather_rows(stream, table, ids, out);
}

void CpuOps::embedding_backward(Stream& stream, ConstTensorView ids, ConstTensorView dout, TensorView dtable) {
  check_embedding_backward(ids, dout, dtable);
  run(stream, [=] {
    // Tokens sorted by (id, token): every row of the table is summed by one thread, in token order.
    const auto* id = static_cast<const std::int32_t*>(ids.data());
    std::vector<std::uint64_t> order(static_cast<std::size_t>(ids.cols()));
    for (std::size_t t = 0; t < order.size(); ++t) {
      order[t] = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(id[t])) << 32U) | t;
    }
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> group_begin;  // of the tokens of each distinct id
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || order[i] >> 32U != order[i - 1] >> 32U) group_begin.push_back(i);
    }
    const auto groups = static_cast<std::int64_t>(group_begin.size());
    group_begin.push_back(order.size());

    with_dtype(dout.dtype(), [&]<class T>(std::type_identity<T>) {
      parallel_ranges(groups, dout.cols(), [&](std::int64_t first, std::int64_t last) {
        const auto begin = group_begin[static_cast<std::size_t>(first)];
        const auto end = group_begin[static_cast<std::size_t>(last)];
        for (std::size_t i = begin; i < end; ++i) {
          float* sum = row_of<float>(dtable, static_cast<std::int64_t>(order[i] >> 32U));
          const T* gradient = row_of<T>(dout, static_cast<std::int64_t>(order[i] & 0xFFFFFFFFU));
          for (std::int64_t j = 0; j < dout.cols(); ++j) sum[j] += static_cast<float>(gradient[j]);
        }
      });
    });
  });
}

}  // namespace skrull

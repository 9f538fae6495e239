#include "loss_head.h"

#include <algorithm>

namespace skrull {
namespace {

/// Calls chunk(begin, count) for pieces of at most `most` rows, of nearly equal size: the products are as efficient as
/// they can be.
template <class Chunk>
void for_chunks(std::int64_t rows, std::int64_t most, const Chunk& chunk) {
  if (rows == 0) return;
  const std::int64_t chunks = (rows + most - 1) / most;
  const std::int64_t size = (rows + chunks - 1) / chunks;
  for (std::int64_t begin = 0; begin < rows; begin += size) chunk(begin, std::min(size, rows - begin));
}

}  // namespace

SupervisedRows::SupervisedRows(const MicroBatch& batch) {
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    if (batch.labels[i] == ignored_label) continue;
    rows.push_back(static_cast<std::int32_t>(i));
    labels.push_back(batch.labels[i]);
    weights.push_back(batch.weights[i]);
  }
}

void head_loss(const Compute& compute, Device& device, const ConstTensorView& hidden, const ConstTensorView& weight,
               const SupervisedRows& supervised, const HeadBuffers& head, const HeadGradients* gradients) {
  Ops& ops = compute.ops;
  Stream& stream = compute.stream;
  device.copy_to_device(stream, head.rows.slice_cols(0, supervised.count()), supervised.rows.data());
  device.copy_to_device(stream, head.labels.slice_cols(0, supervised.count()), supervised.labels.data());
  device.copy_to_device(stream, head.weights.slice_cols(0, supervised.count()), supervised.weights.data());
  if (gradients != nullptr) ops.fill_zero(stream, gradients->dhidden);
  for_chunks(supervised.count(), head.hidden.rows(), [&](std::int64_t begin, std::int64_t count) {
    const ConstTensorView rows = head.rows.slice_cols(begin, count);
    const TensorView chunk_hidden = head.hidden.slice_rows(0, count);
    const TensorView logits = head.logits.slice_rows(0, count);
    ops.gather_rows(stream, hidden, rows, chunk_hidden);
    project(compute, chunk_hidden, weight, logits);
    CrossEntropy loss = {.logits = logits,
                         .labels = head.labels.slice_cols(begin, count),
                         .weights = head.weights.slice_cols(begin, count),
                         .losses = head.losses.slice_cols(begin, count),
                         .gradient = {}};
    if (gradients == nullptr) {
      ops.cross_entropy(stream, loss);
      return;
    }
    const TensorView dlogits = head.dlogits.slice_rows(0, count);
    const TensorView dhidden = head.dhidden.slice_rows(0, count);
    loss.gradient = dlogits;
    ops.cross_entropy(stream, loss);
    add_weight_gradient(compute, dlogits, chunk_hidden, gradients->dweight);
    project_backward(compute, dlogits, weight, dhidden);
    ops.scatter_rows(stream, dhidden, rows, gradients->dhidden);
  });
}

void head_logits(const Compute& compute, Device& device, const ConstTensorView& hidden, const ConstTensorView& weight,
                 std::span<const std::int32_t> rows, const HeadBuffers& head, const TensorView& logits) {
  Ops& ops = compute.ops;
  Stream& stream = compute.stream;
  const auto total = static_cast<std::int64_t>(rows.size());
  device.copy_to_device(stream, head.rows.slice_cols(0, total), rows.data());
  for_chunks(total, head.hidden.rows(), [&](std::int64_t begin, std::int64_t count) {
    const TensorView chunk_hidden = head.hidden.slice_rows(0, count);
    ops.gather_rows(stream, hidden, head.rows.slice_cols(begin, count), chunk_hidden);
    project(compute, chunk_hidden, weight, logits.slice_rows(begin, count));
  });
}

}  // namespace skrull

#include "workspace.h"

#include <algorithm>

#include "skrull/core/error.h"
#include "skrull/core/narrow.h"
#include "skrull/schedule/memory_model.h"

namespace skrull {

TransformerOptions complete_options(const Qwen2Config& config, TransformerOptions options) {
  require(options.max_tokens > 0, "a model for micro-batches of {} tokens", options.max_tokens);
  require(options.compute_dtype == DType::float32 || options.compute_dtype == DType::bfloat16,
          "the model computes in float32 or bfloat16, not {}", name_of(options.compute_dtype));
  require(options.loss_chunk_tokens >= 0, "a loss chunk of {} tokens", options.loss_chunk_tokens);
  if (options.loss_chunk_tokens == 0) {
    options.loss_chunk_tokens = default_loss_chunk_tokens(config.vocab_size);
  }
  options.loss_chunk_tokens = std::min(options.loss_chunk_tokens, options.max_tokens);
  return options;
}

WorkspaceBuffers::WorkspaceBuffers(const Qwen2Config& config, const TransformerOptions& options, Device& device)
    : config_(config), options_(options) {
  lay_out(config, options, options.max_tokens,
          [&](const char* category, DType dtype, std::int64_t rows, std::int64_t cols) {
            buffers_.push_back(device.allocate(dtype, rows, cols, category));
            return buffers_.back().view(dtype, rows, cols);
          });
}

Workspace WorkspaceBuffers::view(std::int64_t tokens) const {
  std::size_t next = 0;
  return lay_out(config_, options_, tokens,
                 [&](const char* /*category*/, DType dtype, std::int64_t rows, std::int64_t cols) {
                   return buffers_.at(next++).view(dtype, rows, cols);
                 });
}

std::int64_t WorkspaceBuffers::planned_bytes(const Qwen2Config& config, const TransformerOptions& options) {
  std::int64_t bytes = 0;
  lay_out(config, options, options.max_tokens,
          [&](const char* /*category*/, DType dtype, std::int64_t rows, std::int64_t cols) {
            bytes += checked_multiply(checked_multiply(rows, cols), size_of(dtype));
            return TensorView();
          });
  return bytes;
}

}  // namespace skrull

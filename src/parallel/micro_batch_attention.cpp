#include "skrull/parallel/micro_batch_attention.h"

#include "skrull/parallel/local_attention.h"
#include "skrull/parallel/ring_attention.h"

namespace skrull {

std::unique_ptr<MicroBatchAttention> make_micro_batch_attention(const MicroBatchAttentionOptions& options,
                                                                Device& device, Communicator& context) {
  if (context.size() == 1) {
    return std::make_unique<LocalAttention>(options.shape, options.max_tokens, options.training, device);
  }
  return std::make_unique<RingAttention>(options, device, context);
}

}  // namespace skrull

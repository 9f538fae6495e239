// In the place of cuDNN when the build has none.

#include "ops/cudnn_attention.h"
#include "skrull/core/error.h"

namespace skrull {

std::string cudnn_problem() {
  return "this build has no cuDNN: cudnn.h or the headers of cudnn-frontend were not found when it was configured";
}

std::unique_ptr<AttentionEngine> make_cudnn_attention(CudaScratch& /*scratch*/, CudaScratch& /*backward_scratch*/,
                                                      const CudnnOptions& /*options*/) {
  throw_run_failure("{}", cudnn_problem());
}

}  // namespace skrull

#include "device/preferred_attention.h"

#include <exception>
#include <string>

#include "ops/attention_self_check.h"
#include "ops/cudnn_attention.h"
#include "skrull/core/error.h"
#include "skrull/core/log.h"

namespace skrull {
namespace {

/// Why there is no cuDNN for this GPU; empty when there is.
std::string problem_of_cudnn(const CudaGpu& gpu) {
  if (!cudnn_obstacle_of_gpu(gpu.capability()).empty()) {
    return fmt::format("it takes packed sequences on compute capability 8, 9 and 10, GPU {} has {}.{}", gpu.index,
                       gpu.major, gpu.minor);
  }
  return cudnn_problem();
}

/// Whether check() finds no problem; warns of one, thrown or returned.
template <class Check>
bool passes(std::string_view direction, const CudaGpu& gpu, Check&& check) {
  std::string problem;
  try {
    problem = check();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (problem.empty()) return true;
  log::warning("{} runs on the program's own kernels: cuDNN failed its check on GPU {}: {}", direction, gpu.index,
               problem);
  return false;
}

PreferredAttention checked_cudnn(bool deterministic, const CudaGpu& gpu, Device& device, CudaScratch& scratch,
                                 CudaScratch& backward_scratch) {
  const auto native = make_native_attention();
  PreferredAttention checked;
  std::shared_ptr<AttentionEngine> cudnn;
  const bool forward = passes("attention's forward", gpu, [&] {
    cudnn = make_cudnn_attention(scratch, backward_scratch, {gpu.capability(), deterministic});
    return compare_attention_forward(device, *cudnn, *native);
  });
  if (forward) checked.forward = cudnn;
  if (!cudnn || !cudnn_backward_obstacle_of_gpu(gpu.capability(), deterministic).empty()) return checked;
  const bool backward = passes("attention's backward", gpu,
                               [&] { return compare_attention_backward(device, *cudnn, *native, deterministic); });
  if (backward) checked.backward = cudnn;
  return checked;
}

}  // namespace

PreferredAttention preferred_attention(const AttentionChoice& choice, const CudaGpu& gpu, Device& device,
                                       CudaScratch& scratch, CudaScratch& backward_scratch) {
  constexpr int first_preferred = 9;  // on older ones nobody has compared the speeds
  const bool asked_for = choice.engine == AttentionEngineChoice::cudnn;
  if (choice.engine == AttentionEngineChoice::native || (!asked_for && gpu.major < first_preferred)) return {};
  if (const std::string problem = problem_of_cudnn(gpu); !problem.empty()) {
    if (!asked_for) return {};
    throw_invalid_input("attention_engine=cudnn can't be had: {}. Use auto or native.", problem);
  }
  return checked_cudnn(choice.deterministic, gpu, device, scratch, backward_scratch);
}

}  // namespace skrull

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
  if (!cudnn_takes(gpu.capability())) {
    return fmt::format("it takes packed sequences on compute capability 9 and 10, GPU {} has {}.{}", gpu.index,
                       gpu.major, gpu.minor);
  }
  return cudnn_problem();
}

std::unique_ptr<AttentionEngine> checked_cudnn(const CudaGpu& gpu, Device& device, CudaScratch& scratch) {
  std::string problem;
  try {
    auto cudnn = make_cudnn_attention(scratch, gpu.capability());
    problem = compare_attention(device, *cudnn, *make_native_attention());
    if (problem.empty()) return cudnn;
  } catch (const std::exception& error) {
    problem = error.what();
  }
  log::warning("attention runs on the program's own kernels: cuDNN failed its check on GPU {}: {}", gpu.index, problem);
  return nullptr;
}

}  // namespace

std::unique_ptr<AttentionEngine> preferred_attention(AttentionEngineChoice choice, const CudaGpu& gpu, Device& device,
                                                     CudaScratch& scratch) {
  if (choice == AttentionEngineChoice::native) return nullptr;
  const std::string problem = problem_of_cudnn(gpu);
  if (problem.empty()) return checked_cudnn(gpu, device, scratch);
  if (choice == AttentionEngineChoice::automatic) return nullptr;
  throw_invalid_input("attention_engine=cudnn can't be had: {}. Use auto or native.", problem);
}

}  // namespace skrull

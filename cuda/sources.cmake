# What the CUDA device is made of, named from cuda/: compiled by nvcc for GPUs, and as C++ for the host by tests/simt.
set(SKRULL_CUDA_SOURCES
  comm/cuda_communicator.cpp comm/staged_communicator.cpp
  device/copy_staging.cpp device/cuda_check.cpp device/cuda_device.cpp device/cuda_events.cpp device/cuda_machine.cpp
  device/cuda_parts.cpp device/cuda_progress.cpp device/cuda_scratch.cpp device/cuda_stream.cpp device/pinned_memory.cpp
  device/gpu_peak.cpp device/preferred_attention.cpp
  kernel/calibration.cu
  ops/adamw.cu ops/attention.cpp ops/attention_backward.cu ops/attention_engine.cpp ops/attention_forward.cu
  ops/attention_general.cu ops/attention_merge.cu ops/attention_self_check.cpp ops/column_sums.cu ops/cross_entropy.cu
  ops/cuda_gemm.cpp ops/cuda_ops.cpp ops/elementwise.cu ops/embedding.cu ops/gemm.cu ops/norm_backward.cu
  ops/norm_forward.cu ops/reduction.cu ops/rope.cu ops/rows.cu ops/sequence_tables.cu ops/swiglu.cu)

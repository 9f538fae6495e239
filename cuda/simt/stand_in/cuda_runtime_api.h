#pragma once
// Stand-in for CUDA's header of this name: the part of the runtime that the device's code calls.

#include <cstddef>

#include "vector_types.h"

using cudaStream_t = struct CUstream_st*;

#pragma once
// Stand-in for CUDA's header of this name: the runtime, and the language that nvcc adds to C++.

#include "cuda_runtime_api.h"
#include "device_functions.h"

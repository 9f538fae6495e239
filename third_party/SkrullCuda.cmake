# Decides SKRULL_WITH_CUDA from SKRULL_CUDA (AUTO, ON, OFF) and what is installed, and switches CMake's CUDA language on.
set(SKRULL_CUDA_ARCHITECTURES "80;90a;100" CACHE STRING
  "GPUs to compile for, as CMAKE_CUDA_ARCHITECTURES takes them: 80 = A100, 90a = H100 and H200, 100 = B200")
option(SKRULL_CUDA_REPORT "Have the compiler say what every kernel uses (registers, shared memory, spills)" OFF)

set(SKRULL_WITH_CUDA OFF)
if(NOT SKRULL_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "SKRULL_CUDA=${SKRULL_CUDA}: expected AUTO, ON or OFF.")
endif()
if(SKRULL_CUDA STREQUAL "ON" OR (SKRULL_CUDA STREQUAL "AUTO" AND NOT SKRULL_SANITIZE))
  find_program(SKRULL_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(SKRULL_NVCC)
  if(SKRULL_NVCC)
    set(SKRULL_WITH_CUDA ON)
  elseif(SKRULL_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SKRULL_CUDA=ON, but there is no nvcc in PATH or /usr/local/cuda/bin. Install the CUDA toolkit "
      "(13.0; from NVIDIA: packages cuda-nvcc-13-0, cuda-cudart-dev-13-0, libcublas-dev-13-0), give its place by "
      "-DSKRULL_NVCC=/path/to/nvcc, or build for the CPU alone with SKRULL_CUDA=OFF.")
  endif()
endif()

if(SKRULL_WITH_CUDA)
  set(CMAKE_CUDA_COMPILER ${SKRULL_NVCC})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(CMAKE_CUDA_ARCHITECTURES ${SKRULL_CUDA_ARCHITECTURES})
  if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 doesn't know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  find_package(NCCL)
  find_package(CuDNN)
endif()

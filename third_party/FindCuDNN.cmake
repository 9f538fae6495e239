# Attention by NVIDIA's cuDNN through its frontend, which is headers alone and opens libcudnn when the program asks: target
# CuDNN::frontend. CuDNN_ROOT says where cudnn.h and cudnn_frontend.h are, should they lie elsewhere than the system, the CUDA
# toolkit or the build folder's cudnn_frontend/include, where scripts/cudnn_frontend.sh puts the latter.
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
  HINTS ${CMAKE_BINARY_DIR}/cudnn_frontend/include ${CUDAToolkit_INCLUDE_DIRS})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CuDNN REQUIRED_VARS CUDNN_INCLUDE_DIR CUDNN_FRONTEND_INCLUDE_DIR)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_FRONTEND_INCLUDE_DIR)
if(CuDNN_FOUND AND NOT TARGET CuDNN::frontend)
  add_library(CuDNN::frontend INTERFACE IMPORTED)
  target_include_directories(CuDNN::frontend SYSTEM INTERFACE
    ${CUDNN_FRONTEND_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(CuDNN::frontend INTERFACE NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING CUDNN_FRONTEND_SKIP_JSON_LIB)
  target_link_libraries(CuDNN::frontend INTERFACE ${CMAKE_DL_LIBS})
endif()

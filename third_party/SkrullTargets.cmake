# Compiler settings that every target shares.
add_library(skrull_settings INTERFACE)
# C++ for the host, by itself or out of a .cu file.
target_compile_options(skrull_settings INTERFACE
  $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall;-Wextra;$<$<BOOL:${SKRULL_WERROR}>:-Werror>>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;$<$<BOOL:${SKRULL_WERROR}>:-Werror=all-warnings>>)
if(SKRULL_NATIVE_ARCH)
  target_compile_options(skrull_settings INTERFACE $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-march=native>)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(skrull_settings INTERFACE $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-march=x86-64-v3>)
endif()
if(SKRULL_SANITIZE)
  target_compile_options(skrull_settings INTERFACE -fsanitize=${SKRULL_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(skrull_settings INTERFACE -fsanitize=${SKRULL_SANITIZE})
endif()

# skrull_layer(NAME SOURCES file... [DEPENDS target...] [PRIVATE_DEPENDS target...])
# One layer of the architecture: target skrull_NAME, public headers in include/skrull/NAME.
function(skrull_layer NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(skrull_${NAME} STATIC ${ARG_SOURCES})
  target_include_directories(skrull_${NAME} PUBLIC ${CMAKE_SOURCE_DIR}/include PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(skrull_${NAME} PUBLIC skrull_settings ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
endfunction()

# SPDX-License-Identifier: Apache-2.0
# The component "nccl", for the build tree and for the installed package alike: defines rtrain::nccl
# when NCCL is there, else sets rtrain_nccl_missing to what is not.
# NCCL_ROOT and CUDAToolkit_ROOT name other places than the usual ones and pip's.

# pip puts NVIDIA's packages beside torch. A program must not load two NCCLs, so libtorch's own it is.
get_filename_component(rtrain_nvidia_packages ${Torch_DIR}/../../../../nvidia ABSOLUTE)

find_path(RTRAIN_NCCL_INCLUDE_DIR nccl.h
          HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${rtrain_nvidia_packages}/nccl PATH_SUFFIXES include)
find_library(RTRAIN_NCCL_LIBRARY NAMES nccl libnccl.so.2 # pip's has no name without a version
             HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${rtrain_nvidia_packages}/nccl
             PATH_SUFFIXES lib lib64)
find_path(RTRAIN_CUDA_INCLUDE_DIR cuda_runtime.h
          HINTS ${CUDAToolkit_ROOT} $ENV{CUDA_HOME} /usr/local/cuda ${rtrain_nvidia_packages}/cu13
                ${rtrain_nvidia_packages}/cuda_runtime
          PATH_SUFFIXES include)
mark_as_advanced(RTRAIN_NCCL_INCLUDE_DIR RTRAIN_NCCL_LIBRARY RTRAIN_CUDA_INCLUDE_DIR)

set(rtrain_nccl_missing "")
if(NOT RTRAIN_NCCL_INCLUDE_DIR)
  list(APPEND rtrain_nccl_missing "nccl.h (pip install nvidia-nccl-cu13, or set NCCL_ROOT)")
endif()
if(NOT RTRAIN_NCCL_LIBRARY)
  list(APPEND rtrain_nccl_missing "libnccl.so (pip install nvidia-nccl-cu13, or set NCCL_ROOT)")
endif()
if(NOT RTRAIN_CUDA_INCLUDE_DIR)
  list(APPEND rtrain_nccl_missing "cuda_runtime.h (a CUDA toolkit, or set CUDAToolkit_ROOT)")
endif()
if(NOT rtrain_nccl_missing) # pip's cuda_runtime.h is a package, and what it includes are two more
  file(WRITE "${CMAKE_BINARY_DIR}/CMakeFiles/rtrain_nccl.cpp"
       "#include <cuda_runtime.h>\n#include <nccl.h>\nint main() { return ncclSuccess + cudaSuccess; }\n")
  try_compile(rtrain_nccl_compiles "${CMAKE_BINARY_DIR}/CMakeFiles/rtrain_nccl"
    SOURCES "${CMAKE_BINARY_DIR}/CMakeFiles/rtrain_nccl.cpp"
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${RTRAIN_CUDA_INCLUDE_DIR};${RTRAIN_NCCL_INCLUDE_DIR}"
    OUTPUT_VARIABLE rtrain_nccl_output)
  if(NOT rtrain_nccl_compiles)
    string(REGEX MATCH "(fatal )?error: [^\n]*" rtrain_nccl_error "${rtrain_nccl_output}")
    list(APPEND rtrain_nccl_missing "headers that compile: ${RTRAIN_CUDA_INCLUDE_DIR}/cuda_runtime.h gives \
\"${rtrain_nccl_error}\" (pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl, or a CUDA toolkit named by \
CUDAToolkit_ROOT)")
    unset(rtrain_nccl_compiles CACHE) # try again once they are installed
  endif()
endif()
rtrain_component(nccl LIBRARIES ${RTRAIN_NCCL_LIBRARY}
                 INCLUDES ${RTRAIN_NCCL_INCLUDE_DIR} ${RTRAIN_CUDA_INCLUDE_DIR})

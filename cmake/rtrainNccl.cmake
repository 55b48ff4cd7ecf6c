# SPDX-License-Identifier: Apache-2.0
# The component "nccl", for the build tree and for the installed package alike: defines rtrain::nccl
# when NCCL is there, else sets rtrain_nccl_missing to what is not.
# NCCL_ROOT and CUDAToolkit_ROOT name other places; the pip packages of the first python3 are found.

execute_process(
  COMMAND python3 -c "import nvidia; print(';'.join(nvidia.__path__))"
  OUTPUT_VARIABLE rtrain_nvidia_packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
list(TRANSFORM rtrain_nvidia_packages APPEND /nccl OUTPUT_VARIABLE rtrain_nccl_packages)
file(GLOB rtrain_cuda_places /usr/local/cuda)
foreach(package IN LISTS rtrain_nvidia_packages)
  list(APPEND rtrain_cuda_places ${package}/cu13 ${package}/cuda_runtime)
endforeach()

# libtorch's own NCCL first: a program must not load two.
find_path(RTRAIN_NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${rtrain_nccl_packages}
          PATH_SUFFIXES include)
find_library(RTRAIN_NCCL_LIBRARY NAMES nccl libnccl.so.2 # pip's has no link without a version
             HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${rtrain_nccl_packages} PATH_SUFFIXES lib lib64)
find_path(RTRAIN_CUDA_INCLUDE_DIR cuda_runtime.h
          HINTS ${CUDAToolkit_ROOT} $ENV{CUDA_HOME} ${rtrain_cuda_places}
          PATH_SUFFIXES include targets/x86_64-linux/include)
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
list(JOIN rtrain_nccl_missing ", " rtrain_nccl_missing)

if(NOT rtrain_nccl_missing AND NOT TARGET rtrain::nccl)
  add_library(rtrain::nccl INTERFACE IMPORTED)
  set_target_properties(rtrain::nccl PROPERTIES
    INTERFACE_LINK_LIBRARIES "rtrain::rtrain;${RTRAIN_NCCL_LIBRARY}")
  target_include_directories(rtrain::nccl SYSTEM INTERFACE
    ${RTRAIN_NCCL_INCLUDE_DIR} ${RTRAIN_CUDA_INCLUDE_DIR})
endif()

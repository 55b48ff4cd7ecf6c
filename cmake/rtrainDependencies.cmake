# SPDX-License-Identifier: Apache-2.0
# What rtrain needs, for the build tree and for the installed package alike. Each missing part is one message that says how to get it.

include(${CMAKE_CURRENT_LIST_DIR}/rtrainCompiler.cmake)

macro(rtrain_require package how)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "rtrain needs ${package}, which was not found. Install it with\n"
                        "    ${how}\nor name its prefix in CMAKE_PREFIX_PATH.")
  endif()
endmacro()

# libtorch: from CMAKE_PREFIX_PATH or Torch_DIR, else inside the pip package of the first python3.
if(NOT TARGET torch)
  if(NOT Torch_DIR)
    find_package(Torch CONFIG QUIET)
  endif()
  if(NOT Torch_DIR)
    execute_process(
      COMMAND python3 -c "import torch.utils; print(torch.utils.cmake_prefix_path)"
      OUTPUT_VARIABLE rtrain_torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(rtrain_torch_prefix)
      list(APPEND CMAKE_PREFIX_PATH ${rtrain_torch_prefix})
    endif()
  endif()
  rtrain_require(Torch "pip install torch==2.13.0")
  if(Torch_VERSION AND Torch_VERSION VERSION_LESS 2.7)
    message(FATAL_ERROR "rtrain needs libtorch 2.7 or newer; the one in ${Torch_DIR} is ${Torch_VERSION}. "
                        "Install a newer one with\n    pip install torch==2.13.0\n"
                        "or name its prefix in CMAKE_PREFIX_PATH.")
  endif()
  if("${TORCH_CXX_FLAGS}" MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
    message(FATAL_ERROR "rtrain needs a libtorch of the C++11 ABI, as Boost has it; the one in ${Torch_DIR} is of "
                        "the old one. Those of pip since 2.7 have it:\n    pip install torch==2.13.0\n"
                        "and of the downloads those named libtorch-cxx11-abi.")
  endif()
  if(NOT TARGET torch) # Conan's libtorch has it under another name
    add_library(torch INTERFACE IMPORTED)
    target_link_libraries(torch INTERFACE libtorch::libtorch)
  endif()
endif()

set(MPI_CXX_SKIP_MPICXX ON)
rtrain_require(MPI "apt-get install libopenmpi-dev openmpi-bin" COMPONENTS CXX)
rtrain_require(Boost "apt-get install libboost1.81-dev libboost-json1.81-dev" 1.75 COMPONENTS json)
rtrain_require(ZLIB "apt-get install zlib1g-dev")
rtrain_require(Threads "apt-get install libc6-dev")

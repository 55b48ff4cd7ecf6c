# SPDX-License-Identifier: Apache-2.0
# What rtrain needs, for the build tree and for the installed package alike. Each missing part is one message that says how to get it.
# rtrain_only_core: the component core, which needs neither libtorch nor MPI.

include(${CMAKE_CURRENT_LIST_DIR}/rtrainCompiler.cmake)

macro(rtrain_require package how)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "rtrain needs ${package}, which was not found. Install it with\n"
                        "    ${how}\nor name its prefix in CMAKE_PREFIX_PATH.")
  endif()
endmacro()

if(NOT rtrain_only_core)
  include(${CMAKE_CURRENT_LIST_DIR}/rtrainTorch.cmake)
  set(MPI_CXX_SKIP_MPICXX ON)
  rtrain_require(MPI "apt-get install libopenmpi-dev openmpi-bin" COMPONENTS CXX)
endif()
rtrain_require(Boost "apt-get install libboost1.81-dev libboost-json1.81-dev libboost-url1.81-dev"
               1.81 COMPONENTS json url)
rtrain_require(ZLIB "apt-get install zlib1g-dev")
rtrain_require(Threads "apt-get install libc6-dev")

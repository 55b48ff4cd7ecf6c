# SPDX-License-Identifier: Apache-2.0
# Which compilers can compile rtrain, for the build tree and for the installed package alike. Others would fail
# in the middle of its headers.

macro(rtrain_require_compiler id name oldest how)
  if(CMAKE_CXX_COMPILER_ID STREQUAL ${id} AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS ${oldest})
    message(FATAL_ERROR "rtrain needs ${name} ${oldest} or newer, for C++20; CMAKE_CXX_COMPILER is "
                        "${CMAKE_CXX_COMPILER_VERSION}. Install a newer one with\n    ${how}\n"
                        "and configure a new build directory with -DCMAKE_CXX_COMPILER=<its path>.")
  endif()
endmacro()
rtrain_require_compiler(GNU g++ 12 "apt-get install g++-12")
rtrain_require_compiler(Clang clang++ 14 "apt-get install clang-14")
if("${CMAKE_CXX_FLAGS}" MATCHES "-std=(c|gnu)[+][+](0x|03|11|14|1y|17|1z)( |$)")
  message(FATAL_ERROR "rtrain needs C++20, but CMAKE_CXX_FLAGS has ${CMAKE_MATCH_0}; leave it out: what links "
                      "rtrain::rtrain is compiled as C++20, or as a newer one that CMAKE_CXX_STANDARD names.")
endif()

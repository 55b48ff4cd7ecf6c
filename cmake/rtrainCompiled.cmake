# SPDX-License-Identifier: Apache-2.0
# rtrain::compiled, for the build tree and for the installed package alike: rtrain::rtrain whose
# definitions behind doors (rtrain/base/compiled.hpp) are compiled once, in the tree of whoever links it,
# with their libtorch, MPI and flags. It is built when a program needs it.
#
# It brings a precompiled header: target_precompile_headers(program REUSE_FROM rtrain_compiled).
# RTRAIN_PRECOMPILED_HEADERS names what that holds.

if(NOT TARGET rtrain_compiled)
  set(rtrain_compiled_sources backend files metric model search track train tune)
  list(TRANSFORM rtrain_compiled_sources
       REPLACE "(.+)" "${CMAKE_CURRENT_LIST_DIR}/compiled/\\1.cpp")
  add_library(rtrain_compiled STATIC EXCLUDE_FROM_ALL ${rtrain_compiled_sources})
  add_library(rtrain::compiled ALIAS rtrain_compiled)
  target_link_libraries(rtrain_compiled PUBLIC rtrain::rtrain)
  target_compile_definitions(rtrain_compiled PUBLIC RTRAIN_COMPILED)
  # g++ collects its garbage when its memory has doubled. Files behind libtorch's headers, and those behind
  # the precompiled header, come past such a point by the little that they add to it, and would pay a tenth
  # of their time for nothing (docs/benchmarks/compile.md).
  set(rtrain_heap_kb
      "$<IF:$<BOOL:$<TARGET_PROPERTY:PRECOMPILE_HEADERS_REUSE_FROM>>,1048576,524288>")
  target_compile_options(rtrain_compiled PUBLIC
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=${rtrain_heap_kb}>")
  if(NOT DEFINED RTRAIN_PRECOMPILED_HEADERS)
    set(RTRAIN_PRECOMPILED_HEADERS <torch/torch.h> <rtrain/trainer.hpp>)
  endif()
  target_precompile_headers(rtrain_compiled PRIVATE ${RTRAIN_PRECOMPILED_HEADERS})
endif()

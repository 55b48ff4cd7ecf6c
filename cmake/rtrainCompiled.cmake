# SPDX-License-Identifier: Apache-2.0
# rtrain::compiled, for the build tree and for the installed package alike: rtrain::rtrain whose
# definitions behind doors (rtrain/base/compiled.hpp) are compiled once. An installed library
# (RTRAIN_INSTALL_COMPILED) is used if it fits the project's libtorch, MPI, Boost and compiler.
# Otherwise, the project's own build compiles it when a program needs it.
#
# RTRAIN_COMPILE_SOURCES: ON always compiles it here; OFF makes an installed library that does not fit, or
# is missing, an error.
#
# It brings a precompiled header: target_precompile_headers(program REUSE_FROM rtrain_compiled).
# RTRAIN_PRECOMPILED_HEADERS names what that holds.

# g++ collects its garbage when its memory has doubled. Files behind libtorch's headers, and those behind
# the precompiled header, come past such a point by the little that they add to it, and would pay a tenth
# of their time for nothing (docs/benchmarks/compile.md).
function(rtrain_compile_as_compiled target scope)
  set(heap_kb "$<IF:$<BOOL:$<TARGET_PROPERTY:PRECOMPILE_HEADERS_REUSE_FROM>>,1048576,524288>")
  target_compile_options(${target} ${scope}
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=${heap_kb}>")
  target_compile_definitions(${target} ${scope} RTRAIN_COMPILED)
  target_link_libraries(${target} ${scope} rtrain::rtrain)
endfunction()

if(NOT TARGET rtrain::compiled)
  set(rtrain_library "")
  set(rtrain_library_why_not "no compiled library is installed")
  if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/rtrainCompiledLibrary.cmake" AND NOT RTRAIN_COMPILE_SOURCES)
    include("${CMAKE_CURRENT_LIST_DIR}/rtrainBuiltFor.cmake")
    include("${CMAKE_CURRENT_LIST_DIR}/rtrainCompiledLibrary.cmake")
    set(rtrain_library "${rtrain_prefix}/${rtrain_library_file}")
    rtrain_library_misfit(rtrain_library_why_not "${rtrain_library}" "${rtrain_prefix}")
  endif()

  set(rtrain_compiled_news "")
  set(rtrain_compile_time "about 6 min on one core, before its own files; with -G Ninja, at the same time")
  if(CMAKE_GENERATOR MATCHES Ninja)
    set(rtrain_compile_time "about 6 min on one core, at the same time as its own files")
  endif()
  set(rtrain_compile_advice "install rtrain with -DRTRAIN_INSTALL_COMPILED=ON")
  if(rtrain_library_why_not STREQUAL "")
    set(rtrain_compiled_news "rtrain::compiled is ${rtrain_library}")
  elseif(DEFINED RTRAIN_COMPILE_SOURCES AND NOT RTRAIN_COMPILE_SOURCES)
    message(FATAL_ERROR "rtrain::compiled: ${rtrain_library_why_not}; ${rtrain_compile_advice} for what this "
                        "project has, or leave RTRAIN_COMPILE_SOURCES unset [RT-C44]")
  elseif(NOT rtrain_library STREQUAL "")
    string(CONCAT rtrain_compiled_news "rtrain::compiled: ${rtrain_library_why_not}, so the first program that "
           "links it compiles it (${rtrain_compile_time}); ${rtrain_compile_advice} for what this project has "
           "to avoid that [RT-C44]")
  elseif(NOT PROJECT_NAME STREQUAL rtrain OR NOT PROJECT_IS_TOP_LEVEL)
    string(CONCAT rtrain_compiled_news "rtrain::compiled: the first program that links it compiles it "
           "(${rtrain_compile_time}); ${rtrain_compile_advice} to avoid that")
  endif()
  # Once in a build tree, and again when it is something else.
  if(NOT rtrain_compiled_news STREQUAL "$CACHE{RTRAIN_COMPILED_NEWS}" AND NOT rtrain_FIND_QUIETLY)
    message(STATUS "${rtrain_compiled_news}")
    set(RTRAIN_COMPILED_NEWS "${rtrain_compiled_news}" CACHE INTERNAL "")
  endif()

  if(rtrain_library_why_not STREQUAL "")
    add_library(rtrain::compiled STATIC IMPORTED)
    set_target_properties(rtrain::compiled PROPERTIES IMPORTED_LOCATION "${rtrain_library}")
    rtrain_compile_as_compiled(rtrain::compiled INTERFACE)
    target_compile_definitions(rtrain::compiled INTERFACE ${rtrain_library_definitions})
  endif()
  if(TARGET rtrain_compiled)
    # find_package in another directory made it; rtrain::compiled may be new here.
  elseif(TARGET rtrain::compiled)
    # Nothing but the precompiled header, made for the first program that reuses it.
    add_library(rtrain_compiled OBJECT EXCLUDE_FROM_ALL
                "${CMAKE_CURRENT_LIST_DIR}/compiled/precompiled.cpp")
    target_link_libraries(rtrain_compiled PUBLIC rtrain::compiled)
  else()
    set(rtrain_compiled_sources backend creators files fit metric model program script search track train tune)
    list(TRANSFORM rtrain_compiled_sources
         REPLACE "(.+)" "${CMAKE_CURRENT_LIST_DIR}/compiled/\\1.cpp")
    add_library(rtrain_compiled STATIC EXCLUDE_FROM_ALL ${rtrain_compiled_sources})
    rtrain_compile_as_compiled(rtrain_compiled PUBLIC)
    add_library(rtrain::compiled ALIAS rtrain_compiled)
  endif()
  if(NOT DEFINED RTRAIN_PRECOMPILED_HEADERS)
    set(RTRAIN_PRECOMPILED_HEADERS <torch/torch.h> <rtrain/trainer.hpp>)
  endif()
  get_target_property(rtrain_precompiled rtrain_compiled PRECOMPILE_HEADERS)
  if(NOT rtrain_precompiled)
    target_precompile_headers(rtrain_compiled PRIVATE ${RTRAIN_PRECOMPILED_HEADERS})
  endif()
endif()

# SPDX-License-Identifier: Apache-2.0
# Settings of rtrain's own programs: warnings as errors, rtrain::compiled, and one precompiled header
# for all of them, because libtorch's headers take 20 s a file.

set(rtrain_warnings
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wold-style-cast
  -Wconversion -Wsign-conversion -Werror
  # False alarms of g++ 12 in the destructors of half-built nested options (GCC's bug 80635).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
find_program(RTRAIN_MOLD mold)
find_program(RTRAIN_CCACHE ccache)
if(RTRAIN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${RTRAIN_CCACHE})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

# What others wrote and many programs include; rtrain's own headers change too often.
set(RTRAIN_PRECOMPILED_HEADERS
  <torch/torch.h> <mpi.h> <regex>
  <boost/asio/io_context.hpp> <boost/asio/posix/stream_descriptor.hpp>
  <boost/asio/read_until.hpp> <boost/asio/signal_set.hpp> <boost/asio/steady_timer.hpp>
  <boost/asio/ip/tcp.hpp> <boost/asio/local/stream_protocol.hpp> <boost/asio/write.hpp>
  <boost/asio/generic/stream_protocol.hpp> <boost/asio/post.hpp>
  <boost/json.hpp> <boost/json/basic_parser_impl.hpp>)
include(cmake/rtrainCompiled.cmake)
target_compile_options(rtrain_compiled PRIVATE ${rtrain_warnings})
target_compile_definitions(rtrain_compiled PUBLIC OMPI_SKIP_MPICXX=1)

# The sources of a program are compiled several at a time: they instantiate the same of libtorch, so that
# five take 35 s together and 27 s each. OFF is better for who changes one of them often.
option(RTRAIN_UNITY_BUILD "Compile the sources of a test program several at a time" ON)
function(rtrain_compile_together target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(count GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${RTRAIN_UNITY_BUILD}
                          UNITY_BUILD_BATCH_SIZE 6)
  endif()
endfunction()

function(rtrain_program_with library name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE ${library})
  target_compile_options(${name} PRIVATE ${rtrain_warnings})
  rtrain_compile_together(${name})
  if(RTRAIN_MOLD)
    target_link_options(${name} PRIVATE -fuse-ld=mold)
  endif()
endfunction()

# rtrain_core_program(<name> <source>...): an executable of ours without libtorch and MPI, which compiles in seconds.
function(rtrain_core_program name)
  rtrain_program_with(rtrain::core ${name} ${ARGN})
endfunction()

# rtrain_header_only_program(<name> <source>...): an executable of ours, all of it from headers.
function(rtrain_header_only_program name)
  rtrain_program_with(rtrain::rtrain ${name} ${ARGN})
endfunction()

# rtrain_program(<name> <source>...): an executable of ours.
function(rtrain_program name)
  rtrain_program_with(rtrain::compiled ${name} ${ARGN})
  target_precompile_headers(${name} REUSE_FROM rtrain_compiled)
endfunction()

# rtrain_deep_programs(<target>...): programs that only deep tests and measurements need. Not part of
# the default build; the target `deep` builds them.
add_custom_target(deep)
function(rtrain_deep_programs)
  set_target_properties(${ARGN} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  add_dependencies(deep ${ARGN})
endfunction()

# rtrain_page_source(<variable> <name> <page>): a source in the build tree, the first C++ of a page of ours.
function(rtrain_page_source variable name page)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${page})
  file(READ ${PROJECT_SOURCE_DIR}/${page} text)
  string(REGEX MATCH "```cpp\n([^`]*)```" _ "${text}")
  file(CONFIGURE OUTPUT ${name}.cpp CONTENT "${CMAKE_MATCH_1}" @ONLY)
  set(${variable} ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp PARENT_SCOPE)
endfunction()

# SPDX-License-Identifier: Apache-2.0
# The component "module", for the build tree and for the installed package alike: defines rtrain::module,
# which is rtrain::compiled for programs that say `import rtrain;`, where compiler, generator and CMake can do
# modules, else sets rtrain_module_missing to what cannot. It is built when a program needs it.

set(rtrain_module_missing "")
if(CMAKE_VERSION VERSION_LESS 3.28)
  list(APPEND rtrain_module_missing
       "CMake 3.28 or later (this is ${CMAKE_VERSION}; pip install cmake has a newer one)")
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  string(CONCAT rtrain_module_compiler "clang 16 or later (CMAKE_CXX_COMPILER is "
         "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}; apt-get install clang-19 clang-tools-19)")
  list(APPEND rtrain_module_missing "${rtrain_module_compiler}")
elseif(NOT CMAKE_VERSION VERSION_LESS 3.28 AND NOT CMAKE_CXX_COMPILER_CLANG_SCAN_DEPS)
  list(APPEND rtrain_module_missing
       "clang-scan-deps beside the compiler (apt-get install clang-tools-19 for clang 19)")
endif()
if(NOT CMAKE_GENERATOR MATCHES "Ninja")
  list(APPEND rtrain_module_missing "the generator Ninja (this is ${CMAKE_GENERATOR}; cmake -G Ninja)")
endif()
list(JOIN rtrain_module_missing ", " rtrain_module_missing)

if(NOT rtrain_module_missing AND NOT TARGET rtrain_module)
  add_library(rtrain_module STATIC EXCLUDE_FROM_ALL)
  add_library(rtrain::module ALIAS rtrain_module)
  target_sources(rtrain_module PUBLIC FILE_SET CXX_MODULES BASE_DIRS ${CMAKE_CURRENT_LIST_DIR}/module
                 FILES ${CMAKE_CURRENT_LIST_DIR}/module/rtrain.cppm)
  target_link_libraries(rtrain_module PUBLIC rtrain::compiled)
endif()

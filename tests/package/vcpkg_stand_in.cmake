# SPDX-License-Identifier: Apache-2.0
# Runs a port without vcpkg: cmake -DPORT= -DPORT_DIRECTORY= -DCURRENT_PACKAGES_DIR=
#                                 -DCURRENT_BUILDTREES_DIR= -P vcpkg_stand_in.cmake
# Each function does of vcpkg's what this port sees of it.
cmake_minimum_required(VERSION 3.25)

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B ${CURRENT_BUILDTREES_DIR} -G Ninja
            -DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR} -DCMAKE_BUILD_TYPE=Release ${arg_OPTIONS}
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(vcpkg_cmake_install)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${CURRENT_BUILDTREES_DIR} --target install
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The package moves to share/<port>, and so do the ways from there to the prefix.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
  set(share ${CURRENT_PACKAGES_DIR}/share/${PORT})
  file(RENAME ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH} ${share})
  cmake_path(GET arg_CONFIG_PATH PARENT_PATH parent)
  file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/${parent})
  file(GLOB scripts ${share}/*.cmake)
  foreach(script IN LISTS scripts)
    file(READ ${script} text)
    string(REPLACE ";" "<semicolon>" text "${text}")
    string(REGEX REPLACE
      "(get_filename_component\\(_IMPORT_PREFIX \"\\\${_IMPORT_PREFIX}\" PATH\\)\n)+"
      "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\nget_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n"
      text "${text}")
    string(REGEX REPLACE "(CMAKE_CURRENT_LIST_DIR})(/\\.\\.)+/?\"" "\\1/../../\"" text "${text}")
    string(REPLACE "<semicolon>" ";" text "${text}")
    file(WRITE ${script} "${text}")
  endforeach()
endfunction()

function(vcpkg_fixup_pkgconfig)
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  file(INSTALL ${arg_FILE_LIST} DESTINATION ${CURRENT_PACKAGES_DIR}/share/${PORT} RENAME copyright)
endfunction()

include(${PORT_DIRECTORY}/portfile.cmake)

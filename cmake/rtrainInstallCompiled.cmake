# SPDX-License-Identifier: Apache-2.0
# The install component "compiled": librtrain_compiled.a, and a record of what it was built for, which
# find_package(rtrain) compares with the project's (rtrainBuiltFor.cmake). RTRAIN_INSTALL_COMPILED builds it by
# default, for programs and shared libraries alike, and makes it a part of every installation.

include(cmake/rtrainBuiltFor.cmake)
set(rtrain_library_rule EXCLUDE_FROM_ALL)
if(RTRAIN_INSTALL_COMPILED)
  set(rtrain_library_rule "")
  set_target_properties(rtrain_compiled PROPERTIES EXCLUDE_FROM_ALL FALSE)
  target_compile_options(rtrain_compiled PUBLIC $<BUILD_INTERFACE:-fPIC>)
  # Assertions name files: not by where they are on this machine.
  target_compile_options(rtrain_compiled PRIVATE "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
  if(TORCH_INSTALL_PREFIX)
    target_compile_options(rtrain_compiled PRIVATE "-ffile-prefix-map=${TORCH_INSTALL_PREFIX}/=")
  endif()
endif()

rtrain_built_for(rtrain_library_built_for)
string(REGEX MATCH "libtorch ([0-9]+)\\.([0-9]+)" _ "${rtrain_library_built_for}")
set(rtrain_library_definitions
    RTRAIN_COMPILED_LIBTORCH_MAJOR=${CMAKE_MATCH_1} RTRAIN_COMPILED_LIBTORCH_MINOR=${CMAKE_MATCH_2})
list(TRANSFORM rtrain_library_definitions PREPEND "-D" OUTPUT_VARIABLE rtrain_library_flags)
list(JOIN rtrain_library_flags " " rtrain_library_flags)
configure_file(cmake/packages/rtrain-compiled.pc.in rtrain-compiled.pc @ONLY)

# The headers are those that it was compiled from, not those of the installation.
configure_file(cmake/packages/rtrainCompiledLibrary.cmake.in rtrainCompiledLibrary.cmake.in @ONLY)
add_custom_command(TARGET rtrain_compiled POST_BUILD
  COMMAND ${CMAKE_COMMAND} -DHEADERS=${PROJECT_SOURCE_DIR}/include
          -DIN=${PROJECT_BINARY_DIR}/rtrainCompiledLibrary.cmake.in
          -DOUT=${PROJECT_BINARY_DIR}/rtrainCompiledLibrary.cmake
          -P ${PROJECT_SOURCE_DIR}/cmake/packages/record_library.cmake
  VERBATIM)

install(FILES $<TARGET_FILE:rtrain_compiled> DESTINATION ${CMAKE_INSTALL_LIBDIR}
        COMPONENT compiled ${rtrain_library_rule})
install(FILES ${PROJECT_BINARY_DIR}/rtrainCompiledLibrary.cmake DESTINATION ${rtrain_package_dir}
        COMPONENT compiled ${rtrain_library_rule})
install(FILES ${PROJECT_BINARY_DIR}/rtrain-compiled.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig
        COMPONENT compiled ${rtrain_library_rule})

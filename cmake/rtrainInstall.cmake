# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` brings: headers, and the package of find_package(rtrain) with rtrain::rtrain,
# rtrain::compiled and its sources, and the components. All of it is text without paths of this machine.
# rtrainInstallCompiled.cmake adds the library that RTRAIN_INSTALL_COMPILED wants.

if(RTRAIN_INSTALL_ONLY)
  set(CMAKE_INSTALL_LIBDIR lib) # no compiler says which it would be; nothing goes there
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)

set(rtrain_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/rtrain)
install(TARGETS rtrain_core EXPORT rtrainCoreTargets FILE_SET HEADERS)
install(TARGETS rtrain EXPORT rtrainTargets)
install(EXPORT rtrainCoreTargets NAMESPACE rtrain:: DESTINATION ${rtrain_package_dir})
install(EXPORT rtrainTargets NAMESPACE rtrain:: DESTINATION ${rtrain_package_dir})
configure_package_config_file(cmake/rtrainConfig.cmake.in rtrainConfig.cmake
                              INSTALL_DESTINATION ${rtrain_package_dir})
block()
  set(CMAKE_SIZEOF_VOID_P "") # would be written down, and means nothing here
  write_basic_package_version_file(rtrainConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
endblock()
install(FILES ${PROJECT_BINARY_DIR}/rtrainConfig.cmake
              ${PROJECT_BINARY_DIR}/rtrainConfigVersion.cmake
              cmake/rtrainDependencies.cmake cmake/rtrainTorch.cmake cmake/rtrainCompiler.cmake cmake/rtrainComponent.cmake cmake/rtrainNccl.cmake
              cmake/rtrainArrow.cmake cmake/rtrainImages.cmake cmake/rtrainHttps.cmake cmake/rtrainStacktrace.cmake
              cmake/rtrainCompiled.cmake cmake/rtrainBuiltFor.cmake cmake/rtrainModule.cmake cmake/rtrainMpiTest.cmake
        DESTINATION ${rtrain_package_dir})
install(DIRECTORY cmake/compiled cmake/module DESTINATION ${rtrain_package_dir})
configure_file(cmake/packages/rtrain.pc.in rtrain.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/rtrain.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
if(PROJECT_IS_TOP_LEVEL)
  include(cmake/rtrainPackages.cmake)
endif()

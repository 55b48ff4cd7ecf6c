# SPDX-License-Identifier: Apache-2.0
# What `cpack` makes, as .deb and .tar.gz: rtrain-dev (headers and package files, for any machine),
# rtrain-compiled-dev (the library for the libtorch it was built with, if RTRAIN_INSTALL_COMPILED is ON) and
# rtrain-tools (programs for libtorch as it is installed here, where they were built).
#   cmake -S . -B build/package -DRTRAIN_INSTALL_ONLY=ON && cpack --config build/package/CPackConfig.cmake
# SOURCE_DATE_EPOCH makes equal bytes of equal contents; DEBFULLNAME and DEBEMAIL say who has packed.

set(rtrain_packages dev)
if(RTRAIN_INSTALL_COMPILED)
  list(APPEND rtrain_packages compiled)
endif()
if(RTRAIN_BUILD_EXAMPLES)
  list(APPEND rtrain_packages tools)
endif()
if(NOT "$ENV{DEBEMAIL}" STREQUAL "")
  set(CPACK_PACKAGE_CONTACT "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
else()
  set(CPACK_PACKAGE_CONTACT "Who has packed it <nobody@rtrain.invalid>")
endif()

# Debian wants a changelog and a copyright in each package, and nobody else does.
find_program(RTRAIN_GZIP gzip)
mark_as_advanced(RTRAIN_GZIP)
string(TIMESTAMP rtrain_packed "%a, %d %b %Y %H:%M:%S +0000" UTC)
string(TIMESTAMP rtrain_year "%Y" UTC)
configure_file(cmake/packages/copyright.in packages/copyright @ONLY)
configure_file(cmake/packages/changelog.in packages/changelog @ONLY)
set(rtrain_documents ${PROJECT_BINARY_DIR}/packages/copyright)
if(RTRAIN_GZIP)
  execute_process(COMMAND ${RTRAIN_GZIP} -9nkf ${PROJECT_BINARY_DIR}/packages/changelog
                  COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND rtrain_documents ${PROJECT_BINARY_DIR}/packages/changelog.gz)
endif()
foreach(package dev compiled tools)
  string(REPLACE compiled compiled-dev directory rtrain-${package})
  install(FILES ${rtrain_documents} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${directory}
          COMPONENT ${package} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME rtrain)
set(CPACK_PACKAGE_VENDOR rtrain)
set(CPACK_COMPONENTS_ALL ${rtrain_packages})
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_DEV_FILE_NAME rtrain-dev-${PROJECT_VERSION})
set(CPACK_ARCHIVE_COMPILED_FILE_NAME rtrain-compiled-dev-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_ARCHIVE_TOOLS_FILE_NAME rtrain-tools-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_FILE_NAME rtrain-${PROJECT_VERSION}) # the directory in a .tar.gz
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/packages/generator.cmake)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME rtrain-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_ARCHITECTURE all)
string(CONCAT CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "g++ (>= 4:12) | clang, cmake (>= 3.25), libopenmpi-dev | libmpich-dev, "
  "libboost1.81-dev | libboost-dev (>= 1.81), libboost-json1.81-dev | libboost-json-dev (>= 1.81), "
  "libboost-url1.81-dev | libboost-url-dev (>= 1.81), "
  "zlib1g-dev")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "python3-pip, libssl-dev, libturbojpeg0-dev, libpng-dev, libdw-dev, rtrain-compiled-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION
"The training loop for one process runs on many: data are divided, gradients
averaged, checkpoints kept, and what has failed goes on from the last one.
.
It needs libtorch, which is not in Debian as new as this: pip install torch.")
set(CPACK_DEBIAN_COMPILED_PACKAGE_NAME rtrain-compiled-dev)
set(CPACK_DEBIAN_COMPILED_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_COMPILED_PACKAGE_DEPENDS "rtrain-dev (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_COMPILED_DESCRIPTION
"The part of rtrain outside templates, compiled: projects that link
rtrain::compiled compile only their own files.
.
It fits the libtorch, MPI, Boost and compiler that it was built with. Projects that
have others compile this part from the sources in rtrain-dev.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME rtrain-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libboost-json1.81.0, libboost-url1.81.0, libssl3, openmpi-bin, zlib1g")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
"What rtrain finds on a machine, reports of runs, trackers brought up to date,
and a look at checkpoints: rtrain-doctor, -report, -sync and -checkpoint.
.
They use libtorch from where it was when they were built.")
include(CPack)

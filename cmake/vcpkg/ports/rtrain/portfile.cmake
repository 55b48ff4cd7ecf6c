# SPDX-License-Identifier: Apache-2.0
# An overlay port: it installs the tree that it lies in. In a collection of ports, SOURCE_PATH comes from
# vcpkg_from_github.
set(VCPKG_BUILD_TYPE release) # headers and text
set(VCPKG_FIXUP_ELF_RPATH OFF) # nothing to patch, so vcpkg need not download patchelf
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS -DRTRAIN_INSTALL_ONLY=ON)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/rtrain)
vcpkg_fixup_pkgconfig(SKIP_CHECK) # libtorch may be the system's

vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")

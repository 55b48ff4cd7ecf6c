# SPDX-License-Identifier: Apache-2.0
# Read by cpack for each of its generators.
if(CPACK_GENERATOR STREQUAL TGZ)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()

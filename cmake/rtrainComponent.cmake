# SPDX-License-Identifier: Apache-2.0
# rtrain_component(<name> LIBRARIES <library>... INCLUDES <directory>...): defines rtrain::<name>, which
# links rtrain::rtrain and what is given, unless rtrain_<name>_missing, a list, says that something is
# missing; makes text of that list.
macro(rtrain_component name)
  cmake_parse_arguments(rtrain_component "" "" "LIBRARIES;INCLUDES" ${ARGN})
  list(JOIN rtrain_${name}_missing ", " rtrain_${name}_missing)
  if(NOT rtrain_${name}_missing AND NOT TARGET rtrain::${name})
    add_library(rtrain::${name} INTERFACE IMPORTED)
    set_target_properties(rtrain::${name} PROPERTIES
      INTERFACE_LINK_LIBRARIES "rtrain::rtrain;${rtrain_component_LIBRARIES}"
      IMPORTED_NO_SYSTEM ON) # rtrain's own headers are no system headers
    if(NOT CMAKE_FIND_PACKAGE_NAME) # a subdirectory of a project, which is to see it, too
      set_target_properties(rtrain::${name} PROPERTIES IMPORTED_GLOBAL ON)
    endif()
    target_include_directories(rtrain::${name} SYSTEM INTERFACE ${rtrain_component_INCLUDES})
  endif()
endmacro()

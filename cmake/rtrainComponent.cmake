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

# rtrain_boosting_component(<Name> PIP <package> HEADER <header> NAMES <library>...): the component of a library
# with a C interface, installed, or from pip's package, which has no headers. Sets
# RTRAIN_<NAME>_INCLUDE_DIR, if there are headers, and RTRAIN_<NAME>_LIBRARY.
macro(rtrain_boosting_component name)
  cmake_parse_arguments(rtrain_boosting "" "PIP;HEADER" "NAMES" ${ARGN})
  string(TOUPPER ${name} rtrain_boosting_upper)
  string(TOLOWER ${name} rtrain_boosting_lower)
  set(rtrain_${rtrain_boosting_lower}_missing "")
  find_path(RTRAIN_${rtrain_boosting_upper}_INCLUDE_DIR ${rtrain_boosting_HEADER}
            HINTS ${${name}_ROOT} $ENV{${name}_ROOT} PATH_SUFFIXES include)
  find_library(RTRAIN_${rtrain_boosting_upper}_LIBRARY NAMES ${rtrain_boosting_NAMES}
               HINTS ${${name}_ROOT} $ENV{${name}_ROOT} PATH_SUFFIXES lib lib64)
  foreach(rtrain_python "${RTRAIN_TEST_PYTHON}" python3)
    if(rtrain_python AND NOT RTRAIN_${rtrain_boosting_upper}_LIBRARY)
      execute_process(
        COMMAND ${rtrain_python} -c
                "import importlib.util as u; print(*u.find_spec('${rtrain_boosting_lower}').submodule_search_locations)"
        OUTPUT_VARIABLE rtrain_boosting_package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      find_library(RTRAIN_${rtrain_boosting_upper}_LIBRARY NAMES ${rtrain_boosting_NAMES}
                   HINTS ${rtrain_boosting_package} ${Torch_DIR}/../../../../${rtrain_boosting_lower}
                   PATH_SUFFIXES lib NO_DEFAULT_PATH)
    endif()
  endforeach()
  mark_as_advanced(RTRAIN_${rtrain_boosting_upper}_INCLUDE_DIR RTRAIN_${rtrain_boosting_upper}_LIBRARY)
  if(NOT RTRAIN_${rtrain_boosting_upper}_LIBRARY)
    set(rtrain_${rtrain_boosting_lower}_missing
        "${name} (pip install ${rtrain_boosting_PIP}, or set ${name}_ROOT)")
  endif()
  set(rtrain_boosting_includes "")
  if(RTRAIN_${rtrain_boosting_upper}_INCLUDE_DIR)
    set(rtrain_boosting_includes ${RTRAIN_${rtrain_boosting_upper}_INCLUDE_DIR})
  endif()
  rtrain_component(${rtrain_boosting_lower} LIBRARIES ${RTRAIN_${rtrain_boosting_upper}_LIBRARY}
                   INCLUDES ${rtrain_boosting_includes})
endmacro()

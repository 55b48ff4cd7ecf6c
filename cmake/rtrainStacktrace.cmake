# SPDX-License-Identifier: Apache-2.0
# The component "stacktrace" (names and lines on the stacks of hung ranks), for the build tree and for the
# installed package alike: defines rtrain::stacktrace if elfutils' libdw is there, else sets
# rtrain_stacktrace_missing to what is not. elfutils_ROOT names another place than the usual ones.

set(rtrain_stacktrace_missing "")
find_path(RTRAIN_LIBDW_INCLUDE_DIR elfutils/libdwfl.h
          HINTS ${elfutils_ROOT} $ENV{elfutils_ROOT} PATH_SUFFIXES include)
find_library(RTRAIN_LIBDW_LIBRARY dw HINTS ${elfutils_ROOT} $ENV{elfutils_ROOT} PATH_SUFFIXES lib lib64)
mark_as_advanced(RTRAIN_LIBDW_INCLUDE_DIR RTRAIN_LIBDW_LIBRARY)
if(NOT RTRAIN_LIBDW_INCLUDE_DIR OR NOT RTRAIN_LIBDW_LIBRARY)
  set(rtrain_stacktrace_missing "elfutils' libdw (apt-get install libdw-dev, or set elfutils_ROOT)")
endif()
rtrain_component(stacktrace LIBRARIES ${RTRAIN_LIBDW_LIBRARY} ${CMAKE_DL_LIBS}
                 INCLUDES ${RTRAIN_LIBDW_INCLUDE_DIR})

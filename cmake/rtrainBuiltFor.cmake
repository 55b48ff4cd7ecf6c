# SPDX-License-Identifier: Apache-2.0
# What a library compiled here was built for, for the build tree and for the installed package alike. The
# package uses an installed librtrain_compiled.a only in a project that has the same.

# rtrain_built_for(<variable>): sets it to a list such as "libtorch 2.13;Open MPI 4;Boost 1.81;...".
function(rtrain_built_for variable)
  # The third number of a libtorch only mends (RT-C43), that of Boost, too.
  set(torch "an unknown version of libtorch")
  if("${Torch_VERSION}" MATCHES "^[0-9]+\\.[0-9]+")
    set(torch "libtorch ${CMAKE_MATCH_0}")
  endif()
  set(boost "an unknown version of Boost")
  if("${Boost_VERSION_STRING};${Boost_VERSION}" MATCHES "([0-9]+\\.[0-9]+)\\.")
    set(boost "Boost ${CMAKE_MATCH_1}")
  endif()
  set(mpi "an unknown MPI")
  foreach(directory IN LISTS MPI_CXX_INCLUDE_DIRS MPI_CXX_HEADER_DIR)
    if(EXISTS "${directory}/mpi.h" AND mpi STREQUAL "an unknown MPI")
      file(STRINGS "${directory}/mpi.h" lines REGEX "define +(OMPI_MAJOR_VERSION|MPICH_VERSION) ")
      if("${lines}" MATCHES "OMPI_MAJOR_VERSION +([0-9]+)")
        set(mpi "Open MPI ${CMAKE_MATCH_1}")
      elseif("${lines}" MATCHES "MPICH_VERSION +\"([0-9]+)")
        set(mpi "MPICH ${CMAKE_MATCH_1}")
      endif()
    endif()
  endforeach()
  string(REGEX MATCH "^[0-9]+" compiler "${CMAKE_CXX_COMPILER_VERSION}")
  # Flags that change what objects link with, or what they check.
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  get_directory_property(options COMPILE_OPTIONS)
  get_directory_property(definitions COMPILE_DEFINITIONS)
  list(TRANSFORM definitions PREPEND "-D")
  string(REGEX MATCHALL
    "-fsanitize=[^ ;]+|-D_GLIBCXX_(DEBUG|USE_CXX11_ABI)[^ ;]*|-stdlib=[^ ;]+|-fno-(exceptions|rtti)"
    flags "${CMAKE_CXX_FLAGS};${CMAKE_CXX_FLAGS_${type}};${options};${definitions}")
  list(SORT flags)
  list(JOIN flags " " flags)
  if(flags STREQUAL "")
    set(flags "no flags that change the ABI")
  endif()
  set(${variable} "${torch}" "${mpi}" "${boost}" "the compiler ${CMAKE_CXX_COMPILER_ID} ${compiler}"
      "the processor ${CMAKE_SYSTEM_PROCESSOR}" "${flags}" PARENT_SCOPE)
endfunction()

# rtrain_headers_digest(<variable> <directory>): sets it to a checksum of the headers in <directory>/rtrain.
function(rtrain_headers_digest variable directory)
  file(GLOB_RECURSE headers RELATIVE "${directory}" "${directory}/rtrain/*.hpp" "${directory}/rtrain/*.inc")
  list(SORT headers)
  set(sums "")
  foreach(header IN LISTS headers)
    file(SHA256 "${directory}/${header}" sum)
    string(APPEND sums "${header} ${sum}\n")
  endforeach()
  string(SHA256 sum "${sums}")
  set(${variable} ${sum} PARENT_SCOPE)
endfunction()

# rtrain_library_misfit(<variable>): sets it to why the installed library does not fit this project, or to
# "". rtrain_library_* are as its record, rtrainCompiledLibrary.cmake, has set them.
function(rtrain_library_misfit variable library prefix)
  set(${variable} "" PARENT_SCOPE)
  if(NOT EXISTS "${library}")
    set(${variable} "${library} does not exist" PARENT_SCOPE)
    return()
  endif()
  rtrain_built_for(present)
  foreach(recorded found IN ZIP_LISTS rtrain_library_built_for present)
    if(NOT recorded STREQUAL found OR found MATCHES "^an unknown")
      set(${variable} "${library} was compiled for ${recorded}, but this project has ${found}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  rtrain_headers_digest(digest "${prefix}/${rtrain_library_include}")
  if(NOT digest STREQUAL rtrain_library_headers)
    set(${variable} "${library} was compiled from other headers than those installed with it" PARENT_SCOPE)
  endif()
endfunction()

# SPDX-License-Identifier: Apache-2.0
# The component "arrow" (S3 and other storage services, CSV and Parquet), for the build tree and for
# the installed package alike: defines rtrain::arrow when Apache Arrow is there, else sets rtrain_arrow_missing to
# what is not. An installed Arrow comes first, then pip's pyarrow, which has the C++ libraries and
# headers. Arrow_ROOT names another place, such as .../site-packages/pyarrow.

set(rtrain_arrow_missing "")
set(rtrain_arrow_libraries "")
find_package(Arrow CONFIG QUIET)
if(TARGET Arrow::arrow_shared)
  set(rtrain_arrow_libraries Arrow::arrow_shared)
  get_target_property(RTRAIN_ARROW_INCLUDE_DIR Arrow::arrow_shared INTERFACE_INCLUDE_DIRECTORIES)
  find_package(ArrowS3 CONFIG QUIET) # a library of its own since 26
  if(TARGET ArrowS3::arrow_s3_shared)
    list(PREPEND rtrain_arrow_libraries ArrowS3::arrow_s3_shared)
  endif()
  find_package(Parquet CONFIG QUIET)
  if(TARGET Parquet::parquet_shared)
    list(PREPEND rtrain_arrow_libraries Parquet::parquet_shared)
  else()
    set(rtrain_arrow_missing "Parquet for C++, which belongs to Apache Arrow")
  endif()
else()
  if(NOT RTRAIN_ARROW_INCLUDE_DIR)
    execute_process(
      COMMAND python3 -c "import importlib.util as u; print(*u.find_spec('pyarrow').submodule_search_locations)"
      OUTPUT_VARIABLE rtrain_pyarrow OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  find_path(RTRAIN_ARROW_INCLUDE_DIR arrow/filesystem/s3fs.h
            HINTS ${Arrow_ROOT} $ENV{Arrow_ROOT} ${Torch_DIR}/../../../../pyarrow ${rtrain_pyarrow}
            PATH_SUFFIXES include)
  mark_as_advanced(RTRAIN_ARROW_INCLUDE_DIR)
  if(RTRAIN_ARROW_INCLUDE_DIR)
    # pip's libraries have no names without a version, and each release has its own.
    file(STRINGS ${RTRAIN_ARROW_INCLUDE_DIR}/arrow/util/config.h rtrain_arrow_config
         REGEX "define ARROW_(SO_VERSION|VERSION_MAJOR) ")
    string(REGEX MATCH "ARROW_SO_VERSION \"([0-9]+)\"" _ "${rtrain_arrow_config}")
    set(rtrain_arrow_soname ${CMAKE_MATCH_1})
    string(REGEX MATCH "ARROW_VERSION_MAJOR ([0-9]+)" _ "${rtrain_arrow_config}")
    set(rtrain_arrow_major ${CMAKE_MATCH_1})
    set(rtrain_arrow_names parquet arrow)
    if(rtrain_arrow_major GREATER_EQUAL 26)
      list(PREPEND rtrain_arrow_names arrow_s3)
    endif()
    foreach(name IN LISTS rtrain_arrow_names)
      set(library ${RTRAIN_ARROW_INCLUDE_DIR}/../lib${name}.so.${rtrain_arrow_soname})
      get_filename_component(library ${library} ABSOLUTE)
      if(EXISTS ${library})
        list(APPEND rtrain_arrow_libraries ${library})
      else()
        list(APPEND rtrain_arrow_missing "${library}, which belongs to its headers")
      endif()
    endforeach()
  else()
    set(rtrain_arrow_missing "Apache Arrow for C++ (pip install pyarrow, or set Arrow_ROOT)")
  endif()
endif()
# Arrow comes after libtorch, whose directory holds headers of other libraries.
rtrain_component(arrow LIBRARIES ${rtrain_arrow_libraries} INCLUDES ${RTRAIN_ARROW_INCLUDE_DIR})

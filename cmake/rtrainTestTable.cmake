# SPDX-License-Identifier: Apache-2.0
# tests/tests.txt, which says of each test its room, depth and expected duration.

set(rtrain_test_table ${PROJECT_SOURCE_DIR}/tests/tests.txt)
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${rtrain_test_table})

# What tests need besides a compiler, as labels. Their directories say what they are about.
set(rtrain_need_ranks "^(deep\\.)?(mpi|comm|nccl|gpu|nodes|chaos|storage\\.(run|tables)|ulfm|mpich)(\\.|$)")
set(rtrain_need_driver
    "^(deep\\.)?(launch(\\.(basic|validation|elastic|watch|main|logs|stop))?|tune\\.(trainers|slots|chaos)|console\\.runs|chaos.*|slurm)$")
set(rtrain_need_service "^(deep\\.)?(storage\\.(filesystem|s3|transfer|retry|nodecache|run|secrets)|track\\.mlflow)(\\.|$)")

# rtrain_sort_tests(): the last line of each directory with tests. Labels them with room and depth; ctest
# starts the longest first. A test without a line in the table is an error.
function(rtrain_sort_tests)
  file(STRINGS ${rtrain_test_table} rows REGEX "^[^#]")
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    set(sorted FALSE)
    foreach(row IN LISTS rows)
      string(REGEX MATCHALL "[^ ]+" cells "${row}")
      list(GET cells 0 pattern)
      string(REGEX REPLACE "([.+])" "\\\\\\1" pattern "${pattern}")
      string(REPLACE "*" ".*" pattern "${pattern}")
      if(test MATCHES "^${pattern}$")
        list(GET cells 1 2 3 row)
        list(GET row 0 room)
        list(GET row 1 depth)
        list(GET row 2 seconds)
        set_property(TEST ${test} APPEND PROPERTY LABELS "room:${room}" ${depth})
        set_tests_properties(${test} PROPERTIES COST ${seconds})
        foreach(need ranks driver service)
          if(test MATCHES "${rtrain_need_${need}}" AND NOT test MATCHES "[.](torch|protocol|other_mpi)$")
            set_property(TEST ${test} APPEND PROPERTY LABELS ${need})
          endif()
        endforeach()
        set(sorted TRUE)
        break()
      endif()
    endforeach()
    if(NOT sorted)
      message(FATAL_ERROR "tests/tests.txt has no line for the test ${test}; "
                          "add its room, depth and seconds.")
    endif()
  endforeach()
endfunction()

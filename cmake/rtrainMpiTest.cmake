# SPDX-License-Identifier: Apache-2.0
# rtrain_add_mpi_test(<name> RANKS <number>... [COMMAND <target or program> [<argument>...]]
#                     [TIMEOUT <seconds>]): for each number, a test <name>.<number> that starts so many
# ranks with the mpiexec of the MPI that was found. For the build tree and for the installed package alike.
#
# COMMAND is the target <name> unless it is given, TIMEOUT 300. There may be more ranks than cores, and
# root may run them. Each test has the label `mpi`, and takes as many of ctest's processors as it has
# ranks.

function(rtrain_add_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "RANKS;COMMAND")
  if(arg_UNPARSED_ARGUMENTS OR NOT DEFINED arg_RANKS)
    message(FATAL_ERROR "rtrain_add_mpi_test(${name} ...) takes RANKS <number>..., COMMAND and TIMEOUT; "
                        "it was given: ${ARGN}")
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    if(NOT ranks MATCHES "^[1-9][0-9]*$")
      message(FATAL_ERROR "rtrain_add_mpi_test(${name} ...): RANKS are numbers from 1, not ${ranks}")
    endif()
  endforeach()
  if(NOT arg_COMMAND)
    set(arg_COMMAND ${name})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  list(POP_FRONT arg_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}.${ranks}
      COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS}
              ${program} ${MPIEXEC_POSTFLAGS} ${arg_COMMAND})
    # Open MPI 4 reads what begins with OMPI, 5 both kinds, MPICH none.
    set_tests_properties(${name}.${ranks} PROPERTIES
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;\
OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_hwloc_base_binding_policy=none;\
OMPI_MCA_mpi_yield_when_idle=1;\
PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe;PRTE_MCA_hwloc_default_binding_policy=none"
      LABELS mpi PROCESSORS ${ranks} TIMEOUT ${arg_TIMEOUT})
  endforeach()
endfunction()

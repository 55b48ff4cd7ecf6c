// SPDX-License-Identifier: Apache-2.0
// To be loaded before MPI: an MPI that may be called from one thread only, whatever it is asked
// for.
#include <mpi.h>

extern "C" int MPI_Init_thread(int* argc, char*** argv, int /*required*/, int* provided) {
    const int result = PMPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, provided);
    *provided = MPI_THREAD_SINGLE;
    return result;
}

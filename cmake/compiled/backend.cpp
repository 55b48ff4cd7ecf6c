// SPDX-License-Identifier: Apache-2.0
#include <rtrain/backend/mpi_definitions.hpp>

template class rtrain::detail::TheBackend<rtrain::backend::Mpi>;

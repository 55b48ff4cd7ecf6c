// SPDX-License-Identifier: Apache-2.0
#include <rtrain/backend/mpi_definitions.hpp>

template class rtrain::detail::TheBackend<rtrain::backend::Mpi>;
template std::shared_ptr<rtrain::detail::AnyBackend>
    rtrain::detail::any_backend(std::shared_ptr<rtrain::backend::Mpi>);

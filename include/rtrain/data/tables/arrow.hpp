// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tables in files, local and on storage services: read_csv() and read_parquet(). The program links
/// rtrain::arrow.
#pragma once

#include <rtrain/data/tables/csv.hpp>
#include <rtrain/data/tables/parquet.hpp>
#include <rtrain/storage/cloud/arrow.hpp>

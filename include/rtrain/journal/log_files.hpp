// SPDX-License-Identifier: Apache-2.0
/// @file
/// The files of a run that grow with its reports. Cost tier 0: std only.
#pragma once

#include <array>

namespace rtrain::track {

inline constexpr const char* results_file = "result.json";
inline constexpr const char* superseded_file = "superseded.json";
inline constexpr const char* progress_file = "progress.csv";
inline constexpr const char* params_file = "params.json";
/// All of them, as they are brought to a storage service.
inline constexpr std::array log_files{results_file, superseded_file, progress_file, params_file};

} // namespace rtrain::track

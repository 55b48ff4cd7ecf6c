// SPDX-License-Identifier: Apache-2.0
/// @file
/// The functions of LightGBM's C interface that rtrain calls: from its header if it is installed,
/// else declared here, because pip's package has none. tests/gbdt compares both.
#pragma once

#if __has_include(<LightGBM/c_api.h>) && !defined(RTRAIN_OWN_LIGHTGBM_DECLARATIONS)
#include <LightGBM/c_api.h>
#else

#include <cstddef>
#include <cstdint>

using DatasetHandle = void*;
using BoosterHandle = void*;

extern "C" {

const char* LGBM_GetLastError();
int LGBM_RegisterLogCallback(void (*callback)(const char*));
int LGBM_DumpParamAliases(std::int64_t buffer_len, std::int64_t* out_len, char* out_str);

int LGBM_GetSampleCount(std::int32_t num_total_row, const char* parameters, int* out);
int LGBM_SampleIndices(std::int32_t num_total_row, const char* parameters, void* out,
                       std::int32_t* out_len);
int LGBM_DatasetCreateFromSampledColumn(double** sample_data, int** sample_indices,
                                        std::int32_t ncol, const int* num_per_col,
                                        std::int32_t num_sample_row, std::int32_t num_local_row,
                                        std::int64_t num_dist_row, const char* parameters,
                                        DatasetHandle* out);
int LGBM_DatasetCreateByReference(DatasetHandle reference, std::int64_t num_total_row,
                                  DatasetHandle* out);
int LGBM_DatasetPushRows(DatasetHandle dataset, const void* data, int data_type, std::int32_t nrow,
                         std::int32_t ncol, std::int32_t start_row);
int LGBM_DatasetSetFeatureNames(DatasetHandle handle, const char** feature_names,
                                int num_feature_names);
int LGBM_DatasetSetField(DatasetHandle handle, const char* field_name, const void* field_data,
                         int num_element, int type);
int LGBM_DatasetFree(DatasetHandle handle);

int LGBM_BoosterCreate(DatasetHandle train_data, const char* parameters, BoosterHandle* out);
int LGBM_BoosterLoadModelFromString(const char* model_str, int* out_num_iterations,
                                    BoosterHandle* out);
int LGBM_BoosterFree(BoosterHandle handle);
int LGBM_BoosterMerge(BoosterHandle handle, BoosterHandle other_handle);
int LGBM_BoosterAddValidData(BoosterHandle handle, DatasetHandle valid_data);
int LGBM_BoosterUpdateOneIter(BoosterHandle handle, int* is_finished);
int LGBM_BoosterGetCurrentIteration(BoosterHandle handle, int* out_iteration);
int LGBM_BoosterGetNumFeature(BoosterHandle handle, int* out_len);
int LGBM_BoosterGetFeatureNames(BoosterHandle handle, int len, int* out_len, std::size_t buffer_len,
                                std::size_t* out_buffer_len, char** out_strs);
int LGBM_BoosterGetEvalCounts(BoosterHandle handle, int* out_len);
int LGBM_BoosterGetEvalNames(BoosterHandle handle, int len, int* out_len, std::size_t buffer_len,
                             std::size_t* out_buffer_len, char** out_strs);
int LGBM_BoosterGetEval(BoosterHandle handle, int data_idx, int* out_len, double* out_results);
int LGBM_BoosterCalcNumPredict(BoosterHandle handle, int num_row, int predict_type,
                               int start_iteration, int num_iteration, std::int64_t* out_len);
int LGBM_BoosterPredictForMat(BoosterHandle handle, const void* data, int data_type,
                              std::int32_t nrow, std::int32_t ncol, int is_row_major,
                              int predict_type, int start_iteration, int num_iteration,
                              const char* parameter, std::int64_t* out_len, double* out_result);
int LGBM_BoosterSaveModelToString(BoosterHandle handle, int start_iteration, int num_iteration,
                                  int feature_importance_type, std::int64_t buffer_len,
                                  std::int64_t* out_len, char* out_str);
int LGBM_BoosterFeatureImportance(BoosterHandle handle, int num_iteration, int importance_type,
                                  double* out_results);

int LGBM_NetworkInitWithFunctions(int num_machines, int rank, void* reduce_scatter_ext_fun,
                                  void* allgather_ext_fun);
int LGBM_NetworkFree();

} // extern "C"

#endif

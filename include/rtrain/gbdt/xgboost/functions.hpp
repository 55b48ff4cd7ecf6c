// SPDX-License-Identifier: Apache-2.0
/// @file
/// The functions of XGBoost's C interface that rtrain calls: from its header if it is installed,
/// else declared here, because pip's package has none. tests/gbdt compares both.
#pragma once

#if __has_include(<xgboost/c_api.h>) && !defined(RTRAIN_OWN_XGBOOST_DECLARATIONS)
#include <xgboost/c_api.h>
#else

#include <cstdint>

extern "C" {

using bst_ulong = std::uint64_t;
using DMatrixHandle = void*;
using BoosterHandle = void*;
using TrackerHandle = void*;
using DataIterHandle = void*;
using XGDMatrixCallbackNext = int(DataIterHandle);
using DataIterResetCallback = void(DataIterHandle);

void XGBoostVersion(int* major, int* minor, int* patch);
const char* XGBGetLastError();
int XGBRegisterLogCallback(void (*callback)(const char*));

int XGProxyDMatrixCreate(DMatrixHandle* out);
int XGProxyDMatrixSetDataDense(DMatrixHandle handle, const char* data);
int XGQuantileDMatrixCreateFromCallback(DataIterHandle iter, DMatrixHandle proxy,
                                        DataIterHandle ref, DataIterResetCallback* reset,
                                        XGDMatrixCallbackNext* next, const char* config,
                                        DMatrixHandle* out);
int XGDMatrixCreateFromDense(const char* data, const char* config, DMatrixHandle* out);
int XGDMatrixSetInfoFromInterface(DMatrixHandle handle, const char* field, const char* data);
int XGDMatrixSetStrFeatureInfo(DMatrixHandle handle, const char* field, const char** features,
                               bst_ulong size);
int XGDMatrixNumRow(DMatrixHandle handle, bst_ulong* out);
int XGDMatrixFree(DMatrixHandle handle);

int XGBoosterCreate(const DMatrixHandle dmats[], bst_ulong len, BoosterHandle* out);
int XGBoosterFree(BoosterHandle handle);
int XGBoosterBoostedRounds(BoosterHandle handle, int* out);
int XGBoosterGetNumFeature(BoosterHandle handle, bst_ulong* out);
int XGBoosterSetParam(BoosterHandle handle, const char* name, const char* value);
int XGBoosterUpdateOneIter(BoosterHandle handle, int iter, DMatrixHandle dtrain);
int XGBoosterEvalOneIter(BoosterHandle handle, int iter, DMatrixHandle dmats[],
                         const char* evnames[], bst_ulong len, const char** out_result);
int XGBoosterPredictFromDense(BoosterHandle handle, const char* values, const char* config,
                              DMatrixHandle m, const bst_ulong** out_shape, bst_ulong* out_dim,
                              const float** out_result);
int XGBoosterLoadModelFromBuffer(BoosterHandle handle, const void* buf, bst_ulong len);
int XGBoosterSaveModelToBuffer(BoosterHandle handle, const char* config, bst_ulong* out_len,
                               const char** out_dptr);
int XGBoosterSaveJsonConfig(BoosterHandle handle, bst_ulong* out_len, const char** out_str);
int XGBoosterSetStrFeatureInfo(BoosterHandle handle, const char* field, const char** features,
                               bst_ulong size);
int XGBoosterGetStrFeatureInfo(BoosterHandle handle, const char* field, bst_ulong* len,
                               const char*** out_features);
int XGBoosterFeatureScore(BoosterHandle handle, const char* config, bst_ulong* out_n_features,
                          const char*** out_features, bst_ulong* out_dim,
                          const bst_ulong** out_shape, const float** out_scores);

// Experimental; only xgboost/ranks.hpp calls these.
int XGTrackerCreate(const char* config, TrackerHandle* handle);
int XGTrackerWorkerArgs(TrackerHandle handle, const char** args);
int XGTrackerRun(TrackerHandle handle, const char* config);
int XGTrackerFree(TrackerHandle handle);
int XGCommunicatorInit(const char* config);
int XGCommunicatorFinalize();
int XGCommunicatorGetRank();
int XGCommunicatorGetWorldSize();

} // extern "C"

#endif

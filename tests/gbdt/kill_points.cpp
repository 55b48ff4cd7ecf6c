// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD, which kills ranks in chosen calls of XGBoost's and LightGBM's C
// interfaces; see kill_test.py.
//
// RTRAIN_KILL_POINTS has points FUNCTION:RANK:CALL:begin|end, separated by commas. The rank kills
// itself with SIGKILL before or after that call, once: it first creates the file FUNCTION:RANK...
// in the directory RTRAIN_KILLED.
#include <rtrain/gbdt/lightgbm/functions.hpp>
#include <rtrain/gbdt/xgboost/functions.hpp>

#include <atomic>
#include <cstdlib>
#include <string>

#include <csignal>
#include <dlfcn.h>
#include <fcntl.h>

namespace {

void die_if_chosen(const std::string& function, int call, const char* when) {
    const char* const points = std::getenv("RTRAIN_KILL_POINTS");
    const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (points == nullptr || rank == nullptr) {
        return;
    }
    const std::string point = function + ":" + rank + ":" + std::to_string(call) + ":" + when;
    if (("," + std::string(points) + ",").find("," + point + ",") == std::string::npos) {
        return;
    }
    const std::string file = std::string(std::getenv("RTRAIN_KILLED")) + "/" + point;
    if (::open(file.c_str(), O_CREAT | O_EXCL, 0600) >= 0) {
        (void)std::raise(SIGKILL);
    }
}

/// Makes a call of this process's library, and dies before or after it where that is chosen. One
/// counter per function.
template <class Function, class... Args>
int make(const char* name, Function* /*type*/, std::atomic<int>& calls, Args... args) {
    const int call = calls++;
    die_if_chosen(name, call, "begin");
    const int result = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name))(args...);
    die_if_chosen(name, call, "end");
    return result;
}

} // namespace

#define RTRAIN_KILL_POINT(function, parameters, ...)                                               \
    extern "C" int function parameters {                                                           \
        static std::atomic<int> calls = 0;                                                         \
        return make(#function, &function, calls, __VA_ARGS__);                                     \
    }

RTRAIN_KILL_POINT(XGTrackerRun, (TrackerHandle a, const char* b), a, b)
RTRAIN_KILL_POINT(XGCommunicatorInit, (const char* a), a)
RTRAIN_KILL_POINT(XGQuantileDMatrixCreateFromCallback,
                  (DataIterHandle a, DMatrixHandle b, DataIterHandle c, DataIterResetCallback* d,
                   XGDMatrixCallbackNext* e, const char* f, DMatrixHandle* g),
                  a, b, c, d, e, f, g)
RTRAIN_KILL_POINT(XGBoosterUpdateOneIter, (BoosterHandle a, int b, DMatrixHandle c), a, b, c)
RTRAIN_KILL_POINT(XGBoosterEvalOneIter,
                  (BoosterHandle a, int b, DMatrixHandle c[], const char* d[], bst_ulong e,
                   const char** f),
                  a, b, c, d, e, f)
RTRAIN_KILL_POINT(XGBoosterSaveModelToBuffer,
                  (BoosterHandle a, const char* b, bst_ulong* c, const char** d), a, b, c, d)

RTRAIN_KILL_POINT(LGBM_NetworkInitWithFunctions, (int a, int b, void* c, void* d), a, b, c, d)
RTRAIN_KILL_POINT(LGBM_DatasetCreateFromSampledColumn,
                  (double** a, int** b, std::int32_t c, const int* d, std::int32_t e,
                   std::int32_t f, std::int64_t g, const char* h, DatasetHandle* i),
                  a, b, c, d, e, f, g, h, i)
RTRAIN_KILL_POINT(LGBM_BoosterUpdateOneIter, (BoosterHandle a, int* b), a, b)
RTRAIN_KILL_POINT(LGBM_BoosterGetEval, (BoosterHandle a, int b, int* c, double* d), a, b, c, d)
RTRAIN_KILL_POINT(LGBM_BoosterSaveModelToString,
                  (BoosterHandle a, int b, int c, int d, std::int64_t e, std::int64_t* f, char* g),
                  a, b, c, d, e, f, g)

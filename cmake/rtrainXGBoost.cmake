# SPDX-License-Identifier: Apache-2.0
# The component "xgboost" (boosted trees: rtrain/xgboost.hpp), for the build tree and for the installed package
# alike: defines rtrain::xgboost when XGBoost is there, else sets rtrain_xgboost_missing to what is not. An installed
# XGBoost comes first, then pip's xgboost-cpu, which has the library but no headers: rtrain declares the functions
# that it calls. XGBoost_ROOT names another place, such as .../site-packages/xgboost.

set(rtrain_xgboost_missing "")
find_path(RTRAIN_XGBOOST_INCLUDE_DIR xgboost/c_api.h HINTS ${XGBoost_ROOT} $ENV{XGBoost_ROOT} PATH_SUFFIXES include)
find_library(RTRAIN_XGBOOST_LIBRARY NAMES xgboost
             HINTS ${XGBoost_ROOT} $ENV{XGBoost_ROOT} PATH_SUFFIXES lib lib64)
if(NOT RTRAIN_XGBOOST_LIBRARY)
  foreach(rtrain_python "${RTRAIN_TEST_PYTHON}" python3)
    if(rtrain_python)
      execute_process(
        COMMAND ${rtrain_python} -c "import importlib.util as u; print(*u.find_spec('xgboost').submodule_search_locations)"
        OUTPUT_VARIABLE rtrain_xgboost_package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      find_library(RTRAIN_XGBOOST_LIBRARY NAMES xgboost
                   HINTS ${rtrain_xgboost_package} ${Torch_DIR}/../../../../xgboost
                   PATH_SUFFIXES lib NO_DEFAULT_PATH)
    endif()
  endforeach()
endif()
mark_as_advanced(RTRAIN_XGBOOST_INCLUDE_DIR RTRAIN_XGBOOST_LIBRARY)
if(NOT RTRAIN_XGBOOST_LIBRARY)
  set(rtrain_xgboost_missing "XGBoost (pip install xgboost-cpu, or set XGBoost_ROOT)")
endif()
set(rtrain_xgboost_includes "")
if(RTRAIN_XGBOOST_INCLUDE_DIR)
  set(rtrain_xgboost_includes ${RTRAIN_XGBOOST_INCLUDE_DIR})
endif()
rtrain_component(xgboost LIBRARIES ${RTRAIN_XGBOOST_LIBRARY} INCLUDES ${rtrain_xgboost_includes})

# SPDX-License-Identifier: Apache-2.0
# The component "xgboost" (boosted trees: rtrain/xgboost.hpp), for the build tree and for the installed package
# alike: defines rtrain::xgboost when XGBoost is there, else sets rtrain_xgboost_missing to what is not. An installed
# XGBoost comes first, then pip's xgboost-cpu, which has the library but no headers: rtrain declares the functions
# that it calls. XGBoost_ROOT names another place, such as .../site-packages/xgboost.

rtrain_boosting_component(XGBoost PIP xgboost-cpu HEADER xgboost/c_api.h NAMES xgboost)

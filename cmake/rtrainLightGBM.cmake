# SPDX-License-Identifier: Apache-2.0
# The component "lightgbm" (boosted trees: rtrain/lightgbm.hpp), for the build tree and for the installed package
# alike: defines rtrain::lightgbm when LightGBM is there, else sets rtrain_lightgbm_missing to what is not. An installed
# LightGBM comes first, then pip's lightgbm, which has the library but no headers: rtrain declares the functions
# that it calls. LightGBM_ROOT names another place, such as .../site-packages/lightgbm.

rtrain_boosting_component(LightGBM PIP lightgbm HEADER LightGBM/c_api.h NAMES _lightgbm lib_lightgbm)

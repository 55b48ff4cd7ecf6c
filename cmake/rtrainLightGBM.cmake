# SPDX-License-Identifier: Apache-2.0
# The component "lightgbm" (boosted trees: rtrain/lightgbm.hpp), for the build tree and for the installed package
# alike: defines rtrain::lightgbm when LightGBM is there, else sets rtrain_lightgbm_missing to what is not. An installed
# LightGBM comes first, then pip's lightgbm, which has the library but no headers: rtrain declares the functions
# that it calls. LightGBM_ROOT names another place, such as .../site-packages/lightgbm.

set(rtrain_lightgbm_missing "")
find_path(RTRAIN_LIGHTGBM_INCLUDE_DIR LightGBM/c_api.h HINTS ${LightGBM_ROOT} $ENV{LightGBM_ROOT} PATH_SUFFIXES include)
find_library(RTRAIN_LIGHTGBM_LIBRARY NAMES _lightgbm lib_lightgbm
             HINTS ${LightGBM_ROOT} $ENV{LightGBM_ROOT} PATH_SUFFIXES lib lib64)
if(NOT RTRAIN_LIGHTGBM_LIBRARY)
  foreach(rtrain_python "${RTRAIN_TEST_PYTHON}" python3)
    if(rtrain_python)
      execute_process(
        COMMAND ${rtrain_python} -c "import importlib.util as u; print(*u.find_spec('lightgbm').submodule_search_locations)"
        OUTPUT_VARIABLE rtrain_lightgbm_package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      find_library(RTRAIN_LIGHTGBM_LIBRARY NAMES _lightgbm lib_lightgbm
                   HINTS ${rtrain_lightgbm_package} ${Torch_DIR}/../../../../lightgbm
                   PATH_SUFFIXES lib NO_DEFAULT_PATH)
    endif()
  endforeach()
endif()
mark_as_advanced(RTRAIN_LIGHTGBM_INCLUDE_DIR RTRAIN_LIGHTGBM_LIBRARY)
if(NOT RTRAIN_LIGHTGBM_LIBRARY)
  set(rtrain_lightgbm_missing "LightGBM (pip install lightgbm, or set LightGBM_ROOT)")
endif()
set(rtrain_lightgbm_includes "")
if(RTRAIN_LIGHTGBM_INCLUDE_DIR)
  set(rtrain_lightgbm_includes ${RTRAIN_LIGHTGBM_INCLUDE_DIR})
endif()
rtrain_component(lightgbm LIBRARIES ${RTRAIN_LIGHTGBM_LIBRARY} INCLUDES ${rtrain_lightgbm_includes})

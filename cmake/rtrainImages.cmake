# SPDX-License-Identifier: Apache-2.0
# The component "images" (JPEG and PNG files), for the build tree and for the installed package alike:
# defines rtrain::images when libjpeg-turbo and libpng are there, else sets rtrain_images_missing to what
# is not. TurboJPEG_ROOT and PNG_ROOT name other places than the usual ones.

set(rtrain_images_missing "")
find_path(RTRAIN_TURBOJPEG_INCLUDE_DIR turbojpeg.h
          HINTS ${TurboJPEG_ROOT} $ENV{TurboJPEG_ROOT} PATH_SUFFIXES include)
find_library(RTRAIN_TURBOJPEG_LIBRARY turbojpeg
             HINTS ${TurboJPEG_ROOT} $ENV{TurboJPEG_ROOT} PATH_SUFFIXES lib lib64)
mark_as_advanced(RTRAIN_TURBOJPEG_INCLUDE_DIR RTRAIN_TURBOJPEG_LIBRARY)
if(NOT RTRAIN_TURBOJPEG_INCLUDE_DIR OR NOT RTRAIN_TURBOJPEG_LIBRARY)
  list(APPEND rtrain_images_missing
       "TurboJPEG (apt-get install libturbojpeg0-dev, or set TurboJPEG_ROOT)")
endif()
find_package(PNG QUIET)
if(NOT TARGET PNG::PNG)
  list(APPEND rtrain_images_missing "libpng (apt-get install libpng-dev, or set PNG_ROOT)")
endif()
rtrain_component(images LIBRARIES ${RTRAIN_TURBOJPEG_LIBRARY} PNG::PNG
                 INCLUDES ${RTRAIN_TURBOJPEG_INCLUDE_DIR})

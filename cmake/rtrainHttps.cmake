# SPDX-License-Identifier: Apache-2.0
# The component "https" (trackers of servers at https://), for the build tree and for the installed
# package alike: defines rtrain::https when OpenSSL is there, else sets rtrain_https_missing to what is
# not. OPENSSL_ROOT_DIR names another place than the usual ones.

set(rtrain_https_missing "")
find_package(OpenSSL 1.1.1 QUIET)
if(NOT TARGET OpenSSL::SSL)
  set(rtrain_https_missing "OpenSSL 1.1.1 or later (apt-get install libssl-dev, or set OPENSSL_ROOT_DIR)")
endif()
rtrain_component(https LIBRARIES OpenSSL::SSL OpenSSL::Crypto)

# SPDX-License-Identifier: Apache-2.0
# Adds the checksum of HEADERS to the record IN, and writes it to OUT.
include(${CMAKE_CURRENT_LIST_DIR}/../rtrainBuiltFor.cmake)
rtrain_headers_digest(digest ${HEADERS})
file(READ ${IN} record)
file(WRITE ${OUT} "${record}set(rtrain_library_headers ${digest})\n")

// SPDX-License-Identifier: Apache-2.0
/// @file
/// is_loopback(): true for the hosts whose requests do not leave this machine. Included by
/// definitions only.
#pragma once

#include <boost/url/authority_view.hpp>

namespace rtrain::track {

/// Does not resolve names, so those of a foreign name server are never loopback.
[[nodiscard]] inline bool is_loopback(const boost::urls::authority_view& authority) {
    switch (authority.host_type()) {
    case boost::urls::host_type::ipv4:
        return authority.host_ipv4_address().is_loopback();
    case boost::urls::host_type::ipv6:
        return authority.host_ipv6_address().is_loopback();
    default:
        return authority.host() == "localhost";
    }
}

} // namespace rtrain::track

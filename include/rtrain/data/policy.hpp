// SPDX-License-Identifier: Apache-2.0
// Programs include this path; it stays valid.
#pragma once

#include <rtrain/data/order/policy.hpp>

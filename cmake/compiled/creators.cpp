// SPDX-License-Identifier: Apache-2.0
#include <rtrain/creators/any_replica_definitions.hpp>
#include <rtrain/creators/call_service_definitions.hpp>
#include <rtrain/creators/client_definitions.hpp>
#include <rtrain/creators/data_definitions.hpp>
#include <rtrain/creators/settings_definitions.hpp>

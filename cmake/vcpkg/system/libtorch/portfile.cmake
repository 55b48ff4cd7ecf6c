# SPDX-License-Identifier: Apache-2.0
set(VCPKG_POLICY_EMPTY_PACKAGE enabled)

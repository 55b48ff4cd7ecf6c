// SPDX-License-Identifier: Apache-2.0
// Empty: beside an installed library, the target rtrain_compiled has nothing but its precompiled header.

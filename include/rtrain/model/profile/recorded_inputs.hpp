// SPDX-License-Identifier: Apache-2.0
/// @file
/// The inputs of an operator, as seen by callbacks of at::RecordFunction.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/ArrayRef.h>

namespace rtrain::detail {

/// In programs without NDEBUG, RecordFunction::inputs() asserts what only a libtorch without NDEBUG
/// has set. So this reads the member itself, by explicit instantiation, in which access is not
/// checked ([temp.spec.general]).
template <class Tag, auto Member>
struct RevealInputs {
    friend c10::ArrayRef<const c10::IValue> inputs_of(Tag /*tag*/, const at::RecordFunction& call) {
        return call.*Member;
    }
};
struct RecordedInputs {
    friend c10::ArrayRef<const c10::IValue> inputs_of(RecordedInputs, const at::RecordFunction&);
};
template struct RevealInputs<RecordedInputs, &at::RecordFunction::inputs_>;

} // namespace rtrain::detail

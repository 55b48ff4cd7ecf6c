// SPDX-License-Identifier: Apache-2.0
// expect NO_REDUCE: GradientHook not met: missing member `void reduce(GradientBucket&, HookRanks&)`
#include <rtrain/model/options.hpp>

struct Mean {
#ifdef NO_REDUCE
    void reduce(int) {}
#else
    void reduce(rtrain::GradientBucket& bucket, rtrain::HookRanks& ranks) {
        ranks.all_reduce(bucket.gradients, rtrain::ReduceOp::sum);
    }
#endif
};

int main() {
    const rtrain::DataParallelOptions options{.hook = rtrain::hook::Custom(Mean{})};
    return static_cast<int>(options.hook.index()) - 4;
}

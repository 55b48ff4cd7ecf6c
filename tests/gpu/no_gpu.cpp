// SPDX-License-Identifier: Apache-2.0
// On a machine without a GPU: every rank gets a clear error, before it waits for anything.
#include <rtrain/backend/nccl.hpp>
#include <rtrain/trainer.hpp>

#include <cstdio>

int main() {
    rtrain::Trainer<rtrain::backend::Nccl> trainer({});
    try {
        trainer.fit([](auto& /*worker*/) {});
    } catch (const rtrain::ConfigError& error) {
        std::printf("refused: %s\n", error.what());
    }
}

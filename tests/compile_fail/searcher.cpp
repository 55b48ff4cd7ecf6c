// SPDX-License-Identifier: Apache-2.0
// One expectation a line:
// clang-format off
// expect COPY: Searcher not met: it cannot be copied [RT-U20]
// expect BEGIN: this searcher lacks `void begin(const rtrain::tune::Space& space, const rtrain::tune::Goal& goal, std::int64_t num_samples)` [RT-U21]
// expect ASK: this searcher lacks `rtrain::tune::Suggestion ask(const std::string& trial)` [RT-U22]
// expect TELL: this searcher lacks `void tell(const std::string& trial, std::optional<double> score, rtrain::tune::TrialEnd end)` [RT-U23]
// expect SAVE: this searcher lacks `boost::json::object save() const` [RT-U24]
// expect LOAD: this searcher lacks `void load(const boost::json::object& state)` [RT-U25]
// expect RESULT: this searcher's `on_result` is not `void on_result(const std::string& trial, std::int64_t iteration, double score)` [RT-U26]
// clang-format on
#include <rtrain/tune/search/searcher.hpp>

using namespace rtrain::tune;

struct MySearcher {
#ifdef COPY
    std::unique_ptr<int> held;
#endif
#ifndef BEGIN
    void begin(const Space&, const Goal&, std::int64_t) {}
#endif
#ifndef ASK
    Suggestion ask(const std::string&) {
        return Wait{};
    }
#endif
#ifndef TELL
    void tell(const std::string&, std::optional<double>, TrialEnd) {}
#endif
#ifndef SAVE
    boost::json::object save() const {
        return {};
    }
#endif
#ifndef LOAD
    void load(const boost::json::object&) {}
#endif
#ifdef RESULT
    void on_result(int) {}
#endif
};

void use() {
    AnySearcher searcher{MySearcher{}};
}

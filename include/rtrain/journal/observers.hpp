// SPDX-License-Identifier: Apache-2.0
/// @file
/// Observers: dispatches a run's events to its observers, in the order in which they were added.
/// Catches all their exceptions.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/journal/observer.hpp>

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::track {

class Observers {
public:
    /// Call before the run starts.
    void add(std::shared_ptr<Observer> observer) {
        std::string name = observer->name();
        listeners_.push_back({std::move(observer), std::move(name)});
    }

    void started(const Started& event) noexcept {
        under_way_ = true;
        tell(&Observer::started, event);
    }
    void prepared(const Prepared& event) noexcept { tell(&Observer::prepared, event); }
    void reported(const Reported& event) noexcept { tell(&Observer::reported, event); }
    void stepped(const Stepped& event) noexcept { tell(&Observer::stepped, event); }
    void reported_by_all(const ReportedByAll& event) noexcept {
        tell(&Observer::reported_by_all, event);
    }
    void saved(const Saved& event) noexcept { tell(&Observer::saved, event); }
    void validated(const Validated& event) noexcept { tell(&Observer::validated, event); }
    void failed(const Failed& event) noexcept { tell(&Observer::failed, event); }
    void restarting(const Restarting& event) noexcept { tell(&Observer::restarting, event); }
    void closing(const Closing& event) noexcept { tell(&Observer::closing, event); }
    /// Reported once, and only if the run has started; never on ranks other than 0.
    void ended(const Ended& event) noexcept {
        if (std::exchange(under_way_, false)) {
            tell(&Observer::ended, event);
        }
    }

private:
    struct Listener {
        std::shared_ptr<Observer> observer;
        std::string name;
        bool has_failed = false;
    };

    template <class Event>
    void tell(void (Observer::*hear)(const Event&), const Event& event) noexcept {
        const std::scoped_lock lock(mutex_); // reports, commits and validations run in different
                                             // threads
        for (Listener& listener : listeners_) {
            try {
                (listener.observer.get()->*hear)(event);
            } catch (const std::exception& error) {
                say_once(listener, error.what());
            } catch (...) {
                say_once(listener, rtrain::detail::thrown_object().c_str());
            }
        }
    }

    static void say_once(Listener& listener, const char* what) noexcept {
        if (!std::exchange(listener.has_failed, true)) {
            console::warn("%s may be missing data from this run: %s; the run continues, later "
                          "failures are not logged",
                          listener.name.c_str(), what);
        }
    }

    std::mutex mutex_;
    std::vector<Listener> listeners_;
    bool under_way_ = false;
};

} // namespace rtrain::track

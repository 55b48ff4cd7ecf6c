// SPDX-License-Identifier: Apache-2.0
/// @file
/// Space: the hyperparameters and their domains. Guide: docs/tune.md. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/search/domain.hpp>
#include <rtrain/tune/search/random.hpp>

#include <boost/json/value.hpp>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::tune {

/// Names with domains, constants or spaces: `Space{{"lr", loguniform(1e-4, 1e-1)}, {"epochs", 10},
/// {"net", Space{{"width", randint(8, 65)}}}}`. A name "scaling/num_workers" is `num_workers`
/// within the object `scaling` of the configuration, like a nested space. Throws ConfigError
/// (RT-U5) for a name that is empty, has an empty part, or is repeated.
class Space {
public:
    /// A constant, a domain, or a space.
    using Content = std::variant<boost::json::value, Domain, std::shared_ptr<const Space>>;
    /// One hyperparameter.
    struct Entry {
        Entry(std::string given, Domain domain) // NOLINT(*-explicit-*)
            : name(std::move(given)), content(std::move(domain)) {}
        Entry(std::string given, Space space); // NOLINT(*-explicit-*)
        template <class T>
        requires std::constructible_from<boost::json::value, T>
        Entry(std::string given, T constant) // NOLINT(*-explicit-*)
            : name(std::move(given)), content(boost::json::value(std::move(constant))) {}

        std::string name; ///< "a/b" is b within a
        Content content;  ///< a constant, a domain or a nested space
    };

    Space() = default;
    Space(std::initializer_list<Entry> entries) : Space(std::vector<Entry>(entries)) {}
    explicit Space(std::vector<Entry> entries);

    [[nodiscard]] auto begin() const noexcept { return entries_.begin(); }
    [[nodiscard]] auto end() const noexcept { return entries_.end(); }
    [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

    /// Draws a configuration; for a grid, one of its values.
    [[nodiscard]] Config sample(Random& random) const;

private:
    std::vector<Entry> entries_;
};

inline Space::Entry::Entry(std::string given, Space space)
    : name(std::move(given)), content(std::make_shared<const Space>(std::move(space))) {}

inline Option::Option(Space space) : held_(std::make_shared<const Space>(std::move(space))) {}

} // namespace rtrain::tune

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/space_definitions.hpp>
#endif

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Configurations as structs. A training function may take its own struct instead of Config.
///
/// @code
/// struct Hyper {
///     double lr = 1e-2;
///     int hidden = 512;
/// };
/// BOOST_DESCRIBE_STRUCT(Hyper, (), (lr, hidden)) // #include <boost/describe/class.hpp>
/// @endcode
/// Cost tier 1: Boost.JSON and Boost.Describe.
#pragma once

#include <rtrain/config/config_value.hpp>
#include <rtrain/config/described.hpp>
#include <rtrain/config/run_info.hpp>

#include <boost/json/conversion.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace rtrain {
namespace detail {

template <class T>
concept TypedConfig = Described<T> && is_config_value<T>;

/// Explains why `T` is not a configuration struct.
template <class T>
struct ExplainTypedConfig {
    static_assert(
        Described<T>,
        "rtrain: this configuration struct is not described; write "
        "BOOST_DESCRIBE_STRUCT(Name, (), (member, member)) after it, in its namespace; it "
        "requires Boost 1.77 or newer [RT-C165]");
    static_assert(
        !Described<T> || std::default_initializable<T>,
        "rtrain: this configuration struct has no default constructor, from which missing "
        "keys take their values [RT-C165]");
    static_assert(
        !Described<T> || is_config_value<T>,
        "rtrain: this configuration struct, or one in it, has a member of another type "
        "than bool, integers, float, double, std::string, std::optional, std::vector, "
        "std::array, std::map<std::string, T>, described enums and structs, rtrain::Config "
        "[RT-C166]");
};

} // namespace detail

/// Returns the struct with a configuration's values; those that are missing keep their defaults.
/// Throws ConfigError for a key that the struct does not have [RT-C167], or a value of the wrong
/// type or range [RT-C168].
template <class T>
[[nodiscard]] T from_config(const Config& config) {
    static_cast<void>(detail::ExplainTypedConfig<T>{});
    T value{};
    if constexpr (detail::TypedConfig<T>) {
        const boost::json::value json(config);
        detail::ConfigValue(json, "").read(value);
    }
    return value;
}

/// Returns the configuration with all members of a struct.
template <class T>
[[nodiscard]] Config to_config(const T& value) {
    static_cast<void>(detail::ExplainTypedConfig<T>{});
    if constexpr (detail::TypedConfig<T>) {
        return detail::config_json(value).as_object();
    } else {
        return {};
    }
}

/// TrainerOptions::config: JSON, or a struct, which is stored as to_config() of it.
class TrainConfig : public Config {
public:
    using Config::Config;
    TrainConfig() = default;
    TrainConfig(Config config) : Config(std::move(config)) {} // NOLINT(google-explicit-constructor)
    template <class T>
    requires(std::is_class_v<T> && !std::convertible_to<T, Config>)
        TrainConfig(const T& value) // NOLINT(google-explicit-constructor)
        : Config(to_config(value)) {}

    friend void tag_invoke(boost::json::value_from_tag /*tag*/, boost::json::value& json,
                           const TrainConfig& config) {
        json = static_cast<const Config&>(config);
    }
    friend TrainConfig tag_invoke(boost::json::value_to_tag<TrainConfig> /*tag*/,
                                  const boost::json::value& json) {
        return json.as_object();
    }
};

} // namespace rtrain

// SPDX-License-Identifier: Apache-2.0
// One expectation a line:
// clang-format off
// expect UNDESCRIBED: write BOOST_DESCRIBE_STRUCT(Name, (), (member, member)) after it, in its namespace
// expect NO_DEFAULT: this configuration struct has no default constructor, from which missing keys take their values [RT-C165]
// expect POINTER: this configuration struct, or one in it, has a member of another type than bool, integers, float, double, std::string, std::optional, std::vector, std::array, std::map<std::string, T>, described enums and structs, rtrain::Config [RT-C166]
// expect UNDESCRIBED_ENUM: described enums and structs, rtrain::Config [RT-C166]
// expect WRITTEN: this configuration struct is not described
// clang-format on
#include <rtrain/config/typed_config.hpp>

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

enum class Kind { sgd, adam };
#ifndef UNDESCRIBED_ENUM
BOOST_DESCRIBE_ENUM(Kind, sgd, adam)
#endif

struct Optimizer {
#ifdef NO_DEFAULT
    explicit Optimizer(double its_lr) : lr(its_lr) {}
#endif
    double lr = 0.1;
    Kind kind = Kind::sgd;
#ifdef POINTER
    const char* name = "";
#else
    std::string name;
#endif
};
#ifndef UNDESCRIBED
BOOST_DESCRIBE_STRUCT(Optimizer, (), (lr, kind, name))
#endif

auto read(const rtrain::Config& config) {
    return rtrain::from_config<Optimizer>(config);
}

#ifdef WRITTEN
struct Plain {};
rtrain::TrainConfig written() {
    return Plain{};
}
#endif

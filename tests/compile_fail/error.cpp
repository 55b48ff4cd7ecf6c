// SPDX-License-Identifier: Apache-2.0
// expect UNKNOWN_CODE: this_error_code_is_not_in_the_table
// expect UNKNOWN_COMPARED: this_error_code_is_not_in_the_table
// expect WRONG_CLASS: the_table_gives_this_error_code_to_another_class
// expect BASE_CLASS: the_table_gives_this_error_code_to_another_class
// expect NOT_AN_EXCEPTION: the_table_gives_this_error_code_to_another_class
#include <rtrain/base/error.hpp>

using namespace rtrain;

void fail(const std::string& computed) {
#ifdef UNKNOWN_CODE
    throw DataError("RT-D9999", "the file is damaged");
#elif defined(WRONG_CLASS)
    throw DataError("RT-K2", "the file is damaged");
#elif defined(BASE_CLASS)
    throw Error("RT-D4", "the file is damaged");
#elif defined(NOT_AN_EXCEPTION)
    throw LaunchError("RT-L10", "the driver has exited");
#endif
    throw computed.empty() ? DataError("RT-D4", "the file is damaged")
                           : DataError(computed, "the file is damaged");
}

bool is_damage(const Error& error) {
#ifdef UNKNOWN_COMPARED
    return error.is("RT-D04");
#endif
    return error.is("RT-D4");
}

// A program's own codes and classes.
class WeatherError : public Error {
    using Error::Error;
};
void fail_outside() {
    throw WeatherError("RAIN", "the game is off");
}

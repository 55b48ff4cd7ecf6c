// SPDX-License-Identifier: Apache-2.0
// What people see of a run on a terminal: each byte of it.
#include <rtrain/base/console.hpp>
#include <rtrain/console/bar.hpp>
#include <rtrain/console/model_table.hpp>
#include <rtrain/console/numbers.hpp>
#include <rtrain/console/table.hpp>
#include <rtrain/console/text.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <string>

using namespace rtrain::console;

namespace {

Progress some_progress() {
    return {.epoch = 3,
            .epochs = 10,
            .done = 450,
            .total = 1000,
            .elapsed_s = 12.4,
            .rate = 36.24,
            .metrics = "loss=0.123, accuracy=0.98"};
}

std::string at(int columns, const Progress& now = some_progress()) {
    return bar_line(now, {.columns = columns});
}

} // namespace

TEST_CASE("Bar.fills_a_line_of_80_columns") {
    CHECK(at(80) ==
          "epoch 3/10:  45%|#######2        | 450/1000 [00:12<00:15, 36.2it/s, loss=0.123]");
}

TEST_CASE("Bar.fills_a_line_of_200_columns") {
    CHECK(at(200) == "epoch 3/10:  45%|" + std::string(54, '#') + "4" + std::string(66, ' ') +
                         "| 450/1000 [00:12<00:15, 36.2it/s, loss=0.123, accuracy=0.98]");
}

TEST_CASE("Bar.fills_a_line_of_40_columns") {
    CHECK(at(40) == "epoch 3/10:  45%|###1   | [00:12<00:15]");
}

TEST_CASE("Bar.is_never_wider_than_the_terminal") {
    Progress counted = some_progress();
    counted.total = 0;
    Progress bare = counted;
    bare.epoch = 0;
    for (int columns = 0; columns <= 250; ++columns) {
        CAPTURE(columns);
        for (const Progress& now : {some_progress(), counted, bare}) {
            CHECK(columns_of(at(columns, now)) <= std::max(columns - 1, 0));
        }
    }
}

TEST_CASE("Bar.has_eighths_of_a_column_where_the_locale_is_utf8") {
    CHECK(bar_line(some_progress(), {.columns = 40, .utf8 = true}) ==
          "epoch 3/10:  45%|\u2588\u2588\u2588\u258f   | [00:12<00:15]");
}

TEST_CASE("Bar.is_green_where_colors_are_wanted") {
    CHECK(bar_line(some_progress(), {.columns = 40, .color = true}) ==
          "epoch 3/10:  45%|\x1b[32m###1   \x1b[0m| [00:12<00:15]");
}

TEST_CASE("Bar.counts_where_the_end_is_not_known") {
    Progress now = some_progress();
    now.total = 0;
    CHECK(at(80, now) == "epoch 3/10: 450it [00:12, 36.2it/s, loss=0.123, accuracy=0.98]");
    CHECK(at(40, now) == "epoch 3/10: 450it [00:12, 36.2it/s]");
    CHECK(at(30, now) == "epoch 3/10: 450it [00:12]");
    CHECK(at(20, now) == "epoch 3/10: 450it");
    CHECK(at(10, now) == "epoch 3..");
    now.epoch = 0;
    CHECK(at(20, now) == "450it [00:12]");
}

TEST_CASE("Bar.begins_without_a_rate_and_may_be_slow") {
    Progress now = some_progress();
    now.done = 0;
    now.rate = 0;
    now.metrics = "";
    CHECK(at(60, now) == "epoch 3/10:   0%|                 | 0/1000 [00:12<?, ?it/s]");
    now.rate = 0.125;
    CHECK(at(60, now) == "epoch 3/10:   0%|         | 0/1000 [00:12<2:13:20, 8.0s/it]");
    now.done = 1000;
    CHECK(at(60, now).starts_with("epoch 3/10: 100%|#"));
    now.done = 1001; // more than was thought
    CHECK(at(60, now).starts_with("epoch 3/10: 100%|#"));
    now.done = 999;
    CHECK(at(60, now).starts_with("epoch 3/10:  99%|"));
}

TEST_CASE("Bar.is_a_plain_line_in_a_log") {
    CHECK(progress_line(some_progress()) ==
          "epoch 3/10:  45% 450/1000 [00:12<00:15, 36.2it/s, loss=0.123, accuracy=0.98]");
    Progress now{.done = 7, .elapsed_s = 3700, .rate = 1};
    CHECK(progress_line(now) == "7it [1:01:40, 1.0it/s]");
}

TEST_CASE("Bar.metrics_do_not_control_the_terminal") {
    Progress now = some_progress();
    now.metrics = "a\x1b[2J\n\r\x7f=1, b\xff=2, c\u202e\u009b=3";
    CHECK(progress_line(now) == "epoch 3/10:  45% 450/1000 [00:12<00:15, 36.2it/s, "
                                "a?[2J?\?\?=1, b?=2, c?\?=3]");
}

TEST_CASE("Text.columns_are_those_of_a_terminal") {
    CHECK(columns_of("abc") == 3);
    CHECK(columns_of("") == 0);
    CHECK(columns_of("\u65e5\u672c") == 4);
    CHECK(columns_of("e\u0301") == 1);
    CHECK(columns_of("\U0001f600") == 2);
    CHECK(cut("abcdef", 6) == "abcdef");
    CHECK(cut("abcdef", 5) == "abc..");
    CHECK(cut("\u65e5\u672c\u8a9e", 5) == "\u65e5..");
    CHECK(cut("abcdef", 2) == "..");
    CHECK(cut("abcdef", 0) == "");
    CHECK(printable("a\tb\xc3") == "a?b?");
    CHECK(printable_lines("a\nb\x1b") == "a\nb?\n");
}

TEST_CASE("Numbers.are_short") {
    CHECK(grouped(0) == "0");
    CHECK(grouped(999) == "999");
    CHECK(grouped(1000) == "1,000");
    CHECK(grouped(-1234567) == "-1,234,567");
    CHECK(scaled(0, "B") == "0 B");
    CHECK(scaled(999, "B") == "999 B");
    CHECK(scaled(1000, "B") == "1.00 kB");
    CHECK(scaled(12'345'678, "B") == "12.3 MB");
    CHECK(scaled(999'999, "B") == "1.00 MB");
    CHECK(scaled(123.4e9, "FLOP") == "123 GFLOP");
    CHECK(duration(59.9) == "00:59");
    CHECK(duration(3600) == "1:00:00");
    CHECK(duration(-1) == "00:00");
    CHECK(duration(std::numeric_limits<double>::infinity()) == "00:00");
    CHECK(rounded(0.123456, 3) == "0.123");
    CHECK(rounded(std::numeric_limits<double>::quiet_NaN(), 3) == "nan");
}

TEST_CASE("ModelTable.loses_columns_before_numbers_are_cut") {
    const std::vector<ModelPart> parts{{"", "Net", 0, 1'199'882, 1'199'562, 4'799'528},
                                       {"conv", "Conv2d", 1, 320, 0, 1280},
                                       {"blocks", "Sequential", 1, 1'199'562, 1'199'562, 4'798'248},
                                       {"0", "Linear", 2, 1'199'562, 1'199'562, 4'798'248}};
    CHECK(model_table(parts, 1, 80) == "  part    type        parameters  trainable    bytes\n"
                                       "  conv    Conv2d             320          0  1.28 kB\n"
                                       "  blocks  Sequential   1,199,562  1,199,562  4.80 MB\n"
                                       "  all     Net          1,199,882  1,199,562  4.80 MB\n");
    CHECK(model_table(parts, 2, 200) == "  part    type        parameters  trainable    bytes\n"
                                        "  conv    Conv2d             320          0  1.28 kB\n"
                                        "  blocks  Sequential   1,199,562  1,199,562  4.80 MB\n"
                                        "    0     Linear       1,199,562  1,199,562  4.80 MB\n"
                                        "  all     Net          1,199,882  1,199,562  4.80 MB\n");
    CHECK(model_table(parts, 1, 40) == "  part    parameters  trainable\n"
                                       "  conv           320          0\n"
                                       "  blocks   1,199,562  1,199,562\n"
                                       "  all      1,199,882  1,199,562\n");
}

TEST_CASE("ModelTable.names_are_cut_and_cleaned_and_not_too_many") {
    std::vector<ModelPart> parts{{"", "Net", 0, 300, 300, 1200}};
    for (int i = 0; i < 150; ++i) {
        parts.push_back({"\x1b[31m" + std::string(100, 'n'), "Linear", 1, 2, 2, 8});
    }
    const std::string text = model_table(parts, 1, 40);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find("  50 more") != std::string::npos);
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        CHECK(columns_of(text.substr(begin, end - begin)) <= 40);
        begin = end + 1;
    }
}

TEST_CASE("List.texts_stand_below_each_other") {
    CHECK(list({{"a", "1"}, {"long", "2\n3"}}) == "  a     1\n  long  2?3\n");
}

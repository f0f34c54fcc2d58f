#include "engine/tuning_text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace ranvier::engine {
namespace {

TuningRow row(Collective collective, std::size_t up_to, const std::string& algorithm) {
  return {.collective = collective, .transport = "tcp", .ranks = 4, .up_to = up_to, .algorithm = algorithm};
}

const std::vector<TuningRow> fresh{row(Collective::all_reduce, 64 << 10, "one_round"),
                                   row(Collective::all_reduce, TuningRow::max, "ring")};

constexpr std::string_view heading = "# collective     transport ranks up to    algorithm\n";
constexpr std::string_view fresh_lines =
    "all_reduce       tcp       4     64K      one_round\n"
    "all_reduce       tcp       4     max      ring\n";

std::string with_heading(std::string_view lines) {
  std::string text(heading);
  text += lines;
  return text;
}

TEST(TuningText, that_is_new_has_a_heading_and_the_rows) { EXPECT_EQ(with_rows("", fresh), with_heading(fresh_lines)); }

TEST(TuningText, keeps_every_comment_with_its_row) {
  const std::string before =
      "# Measured on the new cluster.\n"
      "#  collective  transport ranks up to algorithm\n"
      "\n"
      "# broadcasts: by hand\n"
      "broadcast tcp 4 max binomial_tree   # Do not touch.\n"
      "# all_reduce of a bias\n"
      "all_reduce tcp 4 4K  one_round\n"
      "all_reduce tcp 4 32K halving_doubling # by a hair\n"
      "# large ones\n"
      "all_reduce tcp 4 max ring  # as expected\n"
      "\n"
      "# of the old switch\n"
      "all_reduce tcp 8 max ring\n"
      "# To do: 16 ranks.\n";
  EXPECT_EQ(with_rows(before, fresh),
            "# Measured on the new cluster.\n"
            "#  collective  transport ranks up to algorithm\n"
            "\n"
            "# broadcasts: by hand\n"
            "broadcast tcp 4 max binomial_tree   # Do not touch.\n"
            "# all_reduce of a bias\n"
            "all_reduce       tcp       4     64K      one_round  # by a hair\n"
            "# large ones\n"
            "all_reduce       tcp       4     max      ring  # as expected\n"
            "\n"
            "# of the old switch\n"
            "all_reduce tcp 8 max ring\n"
            "# To do: 16 ranks.\n");
}

TEST(TuningText, keeps_two_comments_of_rows_that_became_one) {
  const std::string before =
      "all_reduce tcp 4 4K  one_round  # first\n"
      "all_reduce tcp 4 32K halving_doubling  # second\n";
  EXPECT_EQ(with_rows(before, fresh), with_heading("# second\n"
                                                   "all_reduce       tcp       4     64K      one_round  # first\n"
                                                   "all_reduce       tcp       4     max      ring\n"));
}

TEST(TuningText, has_rows_of_a_new_kind_behind_all_that_was_there) {
  const std::string before = with_heading("broadcast tcp 4 max binomial_tree\n# The end.\n");
  EXPECT_EQ(with_rows(before, fresh), before + std::string(fresh_lines));
}

TEST(TuningText, is_the_same_when_it_is_written_again) {
  const std::string once = with_rows("# mine\nbroadcast tcp 4 max binomial_tree\n\n# last\n", fresh);
  EXPECT_EQ(with_rows(once, fresh), once);
  EXPECT_EQ(TuningTable::parse(once, "once").rows().size(), 3U);
}

}  // namespace
}  // namespace ranvier::engine

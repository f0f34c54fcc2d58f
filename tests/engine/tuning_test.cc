#include "ranvier/tuning.h"

#include <gmock/gmock.h>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "engine/calls.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/store.h"

namespace ranvier {
namespace {

using testing::HasSubstr;

constexpr auto table_text =
    "# a comment, and an empty line\n"
    "\n"
    "all_reduce  tcp 4 32K one_round\n"
    "all_reduce\ttcp 4 max hierarchical:2  # two nodes\r\n"
    "all_gather  shm 2 max ring";

std::string refusal_of(std::string_view text) {
  try {
    TuningTable::parse(text, "table");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    return error.what();
  }
  return "";
}

TEST(Tuning, FindsTheRowOfASize) {
  const TuningTable table = TuningTable::parse(table_text, "table");
  ASSERT_EQ(table.rows().size(), 3U);
  const auto name = [&](std::string_view transport, Rank world, std::size_t bytes) {
    const auto found = table.find(Collective::all_reduce, transport, world, bytes);
    return found ? std::string(found->algorithm().name) : "";
  };
  EXPECT_EQ(name("tcp", 4, 0), "one_round");
  EXPECT_EQ(name("tcp", 4, 32 << 10), "one_round");
  EXPECT_EQ(name("tcp", 4, (32 << 10) + 1), "hierarchical");
  EXPECT_EQ(table.find(Collective::all_reduce, "tcp", 4, 1 << 20)->dims, std::vector<Rank>{2});
  EXPECT_EQ(name("shm", 4, 4), "");
  EXPECT_EQ(name("tcp", 3, 4), "");
}

TEST(Tuning, ReadsWhatItWrites) {
  const TuningTable table = TuningTable::parse(table_text, "table");
  EXPECT_EQ(TuningTable::parse(table.text(), "again").rows(), table.rows());
}

TEST(Tuning, RowsOfAutoLeaveASizeToTheModel) {
  const TuningTable table = TuningTable::parse(
      "all_reduce tcp 4 1K auto\n"
      "all_reduce tcp 4 2K parameter_server learned\n"
      "all_reduce tcp 4 max auto",
      "table");
  const auto found = [&](std::size_t bytes) { return table.find(Collective::all_reduce, "tcp", 4, bytes); };
  EXPECT_FALSE(found(1024));
  EXPECT_EQ(found(1025)->algorithm().name, "parameter_server");
  EXPECT_FALSE(found(2049));
  EXPECT_FALSE(table.rows()[0].learned);
  EXPECT_TRUE(table.rows()[1].learned);
  EXPECT_EQ(TuningTable::parse(table.text(), "again").rows(), table.rows());

  engine::Calls calls({.world = 4, .algorithm = "auto", .tuning = table, .transport = "tcp", .slice_bytes = 4096});
  const std::vector<TuningRow> rows = calls.rows(Collective::all_reduce);
  const auto row = std::ranges::find(rows, "parameter_server", &TuningRow::algorithm);
  ASSERT_NE(row, rows.end());
  EXPECT_EQ(row->up_to, 2048U);
  EXPECT_TRUE(row->learned);
  EXPECT_EQ(std::ranges::count(rows, "auto", &TuningRow::algorithm), 0) << "but what auto chooses";
  EXPECT_EQ(rows.back().up_to, TuningRow::max);
}

TEST(Tuning, ARowIsLaidOverThoseOfOtherSizes) {
  const auto row = [](std::size_t up_to, const char* algorithm) {
    return TuningRow{.transport = "tcp", .ranks = 4, .up_to = up_to, .algorithm = algorithm};
  };
  const std::vector<TuningRow> rows{row(10, "a"), row(20, "b"), row(TuningRow::max, "c")};
  using Rows = std::vector<TuningRow>;
  EXPECT_EQ(overlaid(rows, 0, row(5, "x")), (Rows{row(5, "x"), row(10, "a"), row(20, "b"), row(TuningRow::max, "c")}));
  EXPECT_EQ(overlaid(rows, 6, row(15, "x")), (Rows{row(5, "a"), row(15, "x"), row(20, "b"), row(TuningRow::max, "c")}));
  EXPECT_EQ(overlaid(rows, 11, row(20, "x")), (Rows{row(10, "a"), row(20, "x"), row(TuningRow::max, "c")}));
  EXPECT_EQ(overlaid(rows, 15, row(TuningRow::max, "x")), (Rows{row(10, "a"), row(14, "b"), row(TuningRow::max, "x")}));
  EXPECT_EQ(overlaid(rows, 0, row(TuningRow::max, "x")), (Rows{row(TuningRow::max, "x")}));
  EXPECT_EQ(overlaid(rows, 30, row(40, "x")),
            (Rows{row(10, "a"), row(20, "b"), row(29, "c"), row(40, "x"), row(TuningRow::max, "c")}));
}

TEST(Tuning, NewRowsTakeThePlaceOfTheirKindOnly) {
  TuningTable table = TuningTable::parse(table_text, "table");
  table.replace({{.collective = Collective::all_reduce, .transport = "tcp", .ranks = 4, .algorithm = "ring"}});
  ASSERT_EQ(table.rows().size(), 2U);
  EXPECT_EQ(table.rows()[0].algorithm, "ring");
  EXPECT_EQ(table.find(Collective::all_gather, "shm", 2, 1)->algorithm().name, "ring");
}

TEST(Tuning, SaysWhereATableIsWrongAndWhatWouldBeRight) {
  EXPECT_THAT(refusal_of("\nall_reduce tcp 4 32K\n"), HasSubstr("table, line 2: 4 words"));
  EXPECT_THAT(refusal_of("all_redcue tcp 4 32K ring"), HasSubstr("'all_reduce'"));
  EXPECT_THAT(refusal_of("all_reduce tpc 4 32K ring"), HasSubstr("'tcp'"));
  EXPECT_THAT(refusal_of("all_reduce tcp four 32K ring"), HasSubstr("'four' is no number of ranks; write a whole"));
  EXPECT_THAT(refusal_of("all_reduce tcp 0 32K ring"), HasSubstr("'0'"));
  EXPECT_THAT(refusal_of("all_reduce tcp 4 big ring"), HasSubstr("'big' is no size"));
  EXPECT_THAT(refusal_of("all_reduce tcp 4 32K rign"), HasSubstr("'ring'"));
  EXPECT_THAT(refusal_of("all_to_all tcp 4 32K ring"), HasSubstr("does not build all_to_all"));
  EXPECT_THAT(refusal_of("all_reduce tcp 4 32K torus:3x3"), HasSubstr("4"));
  EXPECT_THAT(refusal_of("all_reduce tcp 4 32K ring\nall_reduce tcp 4 16K direct"), HasSubstr("line 2"));
  EXPECT_THAT(refusal_of("all_reduce tcp 4 32K ring leaned"), HasSubstr("'leaned' behind the algorithm"));
  EXPECT_THAT(refusal_of("all_reduce tcp 4 32K ring learned twice"),
              HasSubstr("7 words where a row has 5, or 6 with 'learned'"));
  EXPECT_THAT(refusal_of("neighbor_exchange tcp 4 max neighbor_exchange:2x2,periods=1x0"),
              HasSubstr("take this row out"));
  for (const std::string collective : {"barrier", "send", "recv"})
    EXPECT_THAT(refusal_of(collective + " tcp 4 max ring"),
                HasSubstr(collective + " has one algorithm; take this row"));
  EXPECT_THAT(refusal_of(std::string("\0\0\x7f garbage", 11)), HasSubstr("line 1"));
}

TEST(Tuning, NeighbouringSizesOfOneAlgorithmAreOneRow) {
  const TuningRow kind{.transport = "tcp", .ranks = 4, .algorithm = {}};
  const auto rows =
      rows_of({{4, "one_round"}, {64, "one_round"}, {1024, "direct"}, {16384, "ring"}, {1 << 20, "ring"}}, kind);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].algorithm, "one_round");
  EXPECT_EQ(rows[0].up_to, 256U) << "between 64 and 1024";
  EXPECT_EQ(rows[1].up_to, 4096U);
  EXPECT_EQ(rows[2].algorithm, "ring");
  EXPECT_EQ(rows[2].up_to, TuningRow::max);
  EXPECT_EQ(rows[2].transport, "tcp");
}

TEST(Tuning, OneSizeDecidesForAll) {
  const auto rows = rows_of({{4096, "swing"}}, {.transport = "shm", .ranks = 2, .algorithm = {}});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].up_to, TuningRow::max);
}

TEST(Tuning, IsWhatAutoFollows) {
  engine::Calls calls({.rank = 0,
                       .world = 4,
                       .epoch = 0,
                       .algorithm = "auto",
                       .tuning = TuningTable::parse(table_text, "table"),
                       .transport = "tcp",
                       .slice_bytes = 4096,
                       .buffered_bytes = 4096});
  std::vector<float> data(100'000);
  const auto algorithm_for = [&](std::size_t count, std::string_view named) {
    const TypedSpan span(data.data(), count, DType::f32);
    return algorithms()[calls.prepare({.input = span, .output = span, .algorithm = named}).header.algorithm].name;
  };
  EXPECT_EQ(algorithm_for(8192, ""), "one_round");
  EXPECT_EQ(algorithm_for(8193, ""), "hierarchical");
  EXPECT_EQ(algorithm_for(8193, "auto"), "hierarchical");
  EXPECT_EQ(algorithm_for(8193, "ring"), "ring");
}

TEST(Tuning, RanksWithDifferentTablesAreToldBeforeAnythingRuns) {
  const auto file = std::filesystem::temp_directory_path() / ("ranvier-tuning-test-" + std::to_string(getpid()));
  std::ofstream(file) << table_text;
  const auto store = memory_store();
  std::array<std::string, 2> told;
  const auto join = [&](Rank rank) {
    try {
      Communicator::connect(*store, rank, 2,
                            {.tuning = rank == 0 ? file.string() : "", .join_timeout = std::chrono::seconds(20)});
    } catch (const Error& error) {
      told[static_cast<std::size_t>(rank)] = error.what();
    }
  };
  {
    const std::jthread other(join, 1);
    join(0);
  }
  std::filesystem::remove(file);
  for (const std::string& sentence : told) EXPECT_THAT(sentence, HasSubstr("rank 0 has tuning table"));
}

}  // namespace
}  // namespace ranvier

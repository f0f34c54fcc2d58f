// What every spec promises, whatever it is made of: the same bits on all ranks, that do not depend on who is late; and
// what is not finite stays so, is counted, and spoils nothing; and a checkpoint is taken up whole or not at all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "exchange/normal_gradients.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "support/cluster.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

using support::run_ranks;

// Each stage as it stands in the list, by each way that codes go, and what is made of several.
std::vector<std::string> all_specs() {
  std::vector<std::string> specs{"none",
                                 "powersgd:2+bf16",
                                 "acpsgd:2+fp16",
                                 "thc:4",
                                 "randk:0.1+bf16",
                                 "randk:0.1+fp16",
                                 "delta+topk:0.1+int8",
                                 "delta+randk:0.2+bf16",
                                 "int4:ef=21,by=all_gather",
                                 "dct+topk:0.1+hadamard:32+int4+rans",
                                 "topk:0.1,layers=0.5+int4+huffman",
                                 "sign:momentum=0.9",
                                 "normalize+qsgd:3,rounding=nearest+rans",
                                 "bf16+lossless"};
  for (const StageInfo& stage : codec_stages()) {
    std::string spec(stage.name);
    if (stage.name == "delta") continue;
    if (stage.kind == StageKind::code && stage.name != "lossless") spec = "int4+" + spec;
    if (stage.kind == StageKind::exchange) {
      specs.push_back(spec);
      continue;
    }
    for (const std::string_view way : {"reduce_scatter", "all_gather"})
      specs.push_back(fmt::format("{}:by={}", spec, way));
  }
  return specs;
}

// The buckets of one rank: no values, fewer than ranks, uneven parts, several chunks.
const std::vector<std::size_t> sizes{0, 1, 3, 131, 9001};
const auto worlds = support::sanitized ? std::vector<Rank>{3} : std::vector<Rank>{1, 2, 3, 5, 8};

std::vector<std::vector<float>> averages(Communicator& comm, const std::string& spec, unsigned delays) {
  std::mt19937 random(delays * 100 + static_cast<unsigned>(comm.rank()));
  const auto exchange = make_exchange(spec, comm);
  std::vector<std::vector<float>> all;
  for (unsigned step = 0; step < 2; ++step) {
    std::vector<std::vector<float>> buckets;
    for (const std::size_t size : sizes) buckets.push_back(gradients(comm.rank(), size, step));
    std::vector<std::shared_ptr<Averaging>> under_way;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      const std::vector<Tensor> tensors{{.id = i + 1, .rows = sizes[i]}};
      under_way.push_back(exchange->start({.values = buckets[i], .tensors = tensors}));
    }
    std::ranges::shuffle(under_way, random);
    for (const auto& each : under_way) each->wait();
    for (auto& bucket : buckets) all.push_back(std::move(bucket));
  }
  EXPECT_EQ(exchange->plain_buckets(), 0U) << spec;
  return all;
}

TEST(EverySpec, GivesTheSameBitsToAllRanksWhoeverIsLate) {
  // Worlds of their own, so that their time limit is of one spec.
  for (const Rank world : worlds)
    for (const std::string& spec : all_specs())
      run_ranks(world, [&](Communicator& comm) {
        const auto once = averages(comm, spec, 1), again = averages(comm, spec, 2);
        for (std::size_t i = 0; i < once.size(); ++i) {
          SCOPED_TRACE(fmt::format("{}, world {}, bucket {}", spec, comm.world(), i));
          expect_equal_everywhere(comm, once[i]);
          ASSERT_EQ(once[i], again[i]);
        }
      });
}

TEST(EverySpec, KeepsWhatIsNotFiniteAndGoesOnWithTheRest) {
  for (const Rank world : worlds)
    for (const std::string& spec : all_specs())
      run_ranks(world, [&](Communicator& comm) {
        SCOPED_TRACE(fmt::format("{}, world {}", spec, comm.world()));
        const auto exchange = make_exchange(spec, comm);
        constexpr std::size_t rows = 50, count = 50 * 90;
        const std::vector<Tensor> tensors{{.id = 1, .rows = rows, .columns = count / rows}};
        for (unsigned step = 0; step < 6; ++step) {
          auto bucket = gradients(comm.rank(), count, step);
          const bool bad = step % 2 == 0;
          if (bad && comm.rank() == comm.world() - 1) {
            bucket[7] = step == 0 ? NAN : step == 2 ? -INFINITY : INFINITY;
            bucket[count - 1] = NAN;
          }
          if (bad && comm.rank() == 0) bucket[2000] = INFINITY;
          exchange->start({.values = bucket, .tensors = tensors})->wait();
          expect_equal_everywhere(comm, bucket);
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(std::isfinite(bucket[i]), !bad || (i != 7 && i != count - 1 && i != 2000))
                << i << " in step " << step;
        }
        const bool carries = spec == "none" || spec.starts_with("bf16") || spec.starts_with("fp") ||
                             spec.starts_with("lossless") || spec.starts_with("normalize:");
        if (comm.world() > 1) {  // one alone codes nothing
          EXPECT_EQ(exchange->plain_buckets(), carries && !spec.starts_with("fp8") ? 0U : 3U);
        }
      });
}

constexpr std::size_t kept_rows = 20, kept_count = 600;
const std::vector<Tensor> kept_tensors{{.id = 1, .rows = kept_rows, .columns = 25}, {.id = 2, .columns = 100}};

std::vector<std::byte> kept_by(Communicator& comm, const std::string& spec) {
  const auto exchange = make_exchange(spec, comm);
  std::vector<float> bucket;
  for (unsigned step = 0; step < 3; ++step) {
    bucket = gradients(comm.rank(), kept_count, step);
    exchange->start({.values = bucket, .tensors = kept_tensors})->wait();
  }
  return exchange->save({.values = bucket, .tensors = kept_tensors});
}

void expect_refused(Exchange& exchange, const Bucket& bucket, ConstBytes kept) {
  try {
    exchange.restore(bucket, kept);
    ADD_FAILURE() << kept.size() << " bytes are accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config) << error.what();
  }
}

// As it was written before it said how many values and bytes it is of.
std::vector<std::byte> as_written_before(ConstBytes kept) {
  constexpr std::size_t words = 7, words_before = 5;
  std::vector<std::byte> before;
  for (;;) {
    std::array<std::uint64_t, words> head{};
    if (kept.size() >= sizeof head) std::memcpy(head.data(), kept.data(), sizeof head);
    if (head[4] >> 63 == 0 || head[5] != kept_count) break;  // no head: factors, norms, nothing
    head[4] = head[4] << 1 >> 1;
    const auto fields = std::as_bytes(std::span(head).first(words_before));
    const auto floats = kept.subspan(sizeof head, (head[2] + head[3]) * sizeof(float));
    before.insert(before.end(), fields.begin(), fields.end());
    before.insert(before.end(), floats.begin(), floats.end());
    kept = kept.subspan(sizeof head + floats.size());
  }
  before.insert(before.end(), kept.begin(), kept.end());
  return before;
}

TEST(EverySpec, RefusesACheckpointThatIsNotAllOfThisBucketAndNoMore) {
  run_ranks(2, [&](Communicator& comm) {
    for (const std::string& spec : all_specs()) {
      SCOPED_TRACE(spec);
      const auto kept = kept_by(comm, spec);
      const auto exchange = make_exchange(spec, comm), other = make_exchange(spec, comm);
      std::vector<float> values(kept_count);
      const Bucket bucket{.values = values, .tensors = kept_tensors};
      // Every length where heads and lists end, and some of those between.
      for (std::size_t size = 0; size < kept.size(); size += size < 200 || kept.size() - size < 100 ? 1 : 23)
        expect_refused(*exchange, bucket, ConstBytes(kept).first(size));
      for (const std::size_t more : {1, 4, 8, 4000}) {
        auto longer = kept;
        longer.resize(kept.size() + more, std::byte{0x7f});
        expect_refused(*exchange, bucket, longer);
      }
      const auto half = kept_tensors.back();
      if (!kept.empty())
        expect_refused(*exchange, {.values = std::span(values).first(half.size()), .tensors = std::span(&half, 1)},
                       kept);
      for (const auto& [each, bytes] : {std::pair(&exchange, kept), std::pair(&other, as_written_before(kept))}) {
        (*each)->restore(bucket, bytes);
        EXPECT_EQ((*each)->save(bucket), kept);
      }
    }
  });
}

TEST(EverySpec, TakesUpWhatAnyOtherOwed) {
  run_ranks(2, [&](Communicator& comm) {
    const std::vector<std::string> specs{"none",       "bf16",       "qsgd",     "int4",       "normalize+int4",
                                         "delta+int4", "powersgd:2", "acpsgd:4", "thc:8",      "switchml",
                                         "demo",       "randk:0.1",  "dgc:0.1",  "transformer"};
    for (const std::string& from : specs) {
      const auto kept = kept_by(comm, from);
      if (kept.empty()) continue;
      for (const std::string& to : specs)
        for (const auto& bytes : {kept, as_written_before(kept)}) {
          const auto exchange = make_exchange(to, comm);
          std::vector<float> values(kept_count);
          const Bucket bucket{.values = values, .tensors = kept_tensors};
          exchange->restore(bucket, bytes);
          if (const auto owed = owed_in(kept); !owed.empty()) {
            EXPECT_EQ(owed_in(exchange->save(bucket)), owed) << from << " before " << to;
          }
          exchange->start(bucket)->wait();
          expect_equal_everywhere(comm, values);
        }
    }
  });
}

}  // namespace
}  // namespace ranvier

// Ranks that cannot take part do not leave the others waiting.
#include "engine/rendezvous.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/socket.h"
#include "engine/group.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/store.h"
#include "ranvier/transport.h"
#include "support/certificates.h"
#include "support/cluster.h"
#include "support/free_ports.h"
#include "support/on_threads.h"
#include "support/refusal.h"
#include "support/temporary_folder.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr Rank world = 3;

// What each rank throws when rank 1 has `options` and the others have none.
std::array<std::string, world> told(const CommunicatorOptions& options) {
  const auto store = memory_store();
  std::array<std::string, world> sentences;
  const auto join = [&](Rank rank) {
    try {
      Communicator::connect(*store, rank, world, rank == 1 ? options : CommunicatorOptions{});
      ADD_FAILURE() << "rank " << rank << " met others";
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::timeout);
      sentences[static_cast<std::size_t>(rank)] = error.what();
    }
  };
  const auto before = std::chrono::steady_clock::now();
  {
    const std::jthread first(join, 1), second(join, 2);
    join(0);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::minutes(1)) << "and not the join timeout";
  return sentences;
}

void expect_all_told(const CommunicatorOptions& options, const std::string& problem) {
  const auto sentences = told(options);
  for (const std::string& sentence : sentences) EXPECT_THAT(sentence, HasSubstr(problem));
  for (const std::size_t other : {0, 2}) EXPECT_THAT(sentences[other], HasSubstr("rank 1 cannot take part: "));
}

TEST(Rendezvous, WhatOneRankCannotReadIsNewsToAll) {
  expect_all_told({.tuning = "/nowhere/table.txt"}, "cannot read the tuning table /nowhere/table.txt");
  expect_all_told({.security = {.key_file = "/nowhere/job.key"}}, "/nowhere/job.key");
}

TEST(Rendezvous, ACorruptTableOfOneRankIsNewsToAll) {
  const support::TemporaryFolder folder;
  const auto table = folder.path() / "table.txt";
  std::ofstream(table) << "all_reduce tcp 3 max ring\nall_reduce tcp 3 max \x01\xff\n";
  expect_all_told({.tuning = table}, "table.txt, line 2: ");
  EXPECT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  expect_all_told({.tuning = folder.path() / "pipe"}, "it is no regular file");
}

TEST(Rendezvous, OnePortARankIsEnoughAndClosedWhileTheJobRuns) {
  for (const char* const transport : {"tcp", "udp", "grpc"}) {
    const PortRange ports = support::free_ports(world);
    const auto store = memory_store();
    support::on_threads(world, [&](Rank rank) {
      const auto comm = Communicator::connect(*store, rank, world, {.transport = transport, .ports = ports});
      comm->barrier();
      for (std::uint16_t port = ports.first; port <= ports.last; ++port) {
        const Fd stranger = start_connect(*parse_address("127.0.0.1", port), {});
        pollfd ready{stranger.get(), POLLOUT, 0};
        EXPECT_TRUE(!stranger || (poll(&ready, 1, 10'000) == 1 && connect_result(stranger) != 0)) << transport;
      }
      comm->barrier();
    });
  }
}

TEST(Rendezvous, SilenceIsSuspectAfter1SAndFatalAfter3SUnlessTheOptionsSayOtherwise) {
  EXPECT_EQ(CommunicatorOptions().suspect_after, 1s);
  EXPECT_EQ(CommunicatorOptions().dead_after, 3s);
  // Limits that contradict each other come back from the control plane with their numbers.
  const auto arrived = [](const CommunicatorOptions& options) {
    const auto store = memory_store();
    return support::refusal([&] { Communicator::connect(*store, 0, 1, options); }, ErrorKind::config);
  };
  EXPECT_THAT(arrived({.suspect_after = 2s, .dead_after = 1500ms}),
              HasSubstr("suspect_after is 2000 ms and dead_after 1500 ms"));
  EXPECT_THAT(arrived({.suspect_after = 0s}), HasSubstr("suspect_after is 0 ms and dead_after 3000 ms"));
  EXPECT_THAT(arrived({.dead_after = 1ms}), HasSubstr("suspect_after is 1000 ms and dead_after 1 ms"));
}

// Peers would see it too, each when it connects; and a rank that waits for one whom it has refused waits long.
TEST(Rendezvous, AnExpiredCertificateOfOneRankIsNewsToAll) {
  support::Certificates made;
  made.add("old", "ours", -1);
  for (const char* const transport : {"tcp", "udp", "grpc"})
    expect_all_told({.transport = transport, .security = made.options("old")},
                    "old.pem' cannot be used: it has expired on ");
}

TEST(Rendezvous, APrivateKeyOfAnotherCertificateIsNewsToAll) {
  support::Certificates made;
  made.add("one", "ours");
  made.add("two", "ours");
  SecurityOptions mixed = made.options("one");
  mixed.private_key = made.options("two").private_key;
  expect_all_told({.security = mixed}, "one.pem' was made with another one");
}

// What both of 2 ranks of one host say, where nothing is encrypted, one of which has `other`.
void expect_refused(const SecurityOptions& ours, const SecurityOptions& other, const std::string& sentence) {
  const auto store = memory_store();
  support::on_threads(2, [&](Rank rank) {
    const CommunicatorOptions options{.transport = "tcp", .security = rank == 0 ? ours : other};
    const auto join = [&] { Communicator::connect(*store, rank, 2, options); };
    EXPECT_EQ(support::refusal(join, ErrorKind::mismatch), sentence);
  });
}

SecurityOptions with_new_key(const std::filesystem::path& file) {
  std::ofstream(file) << job_key_text(new_job_key());
  chmod(file.c_str(), S_IRUSR | S_IWUSR);
  return {.key_file = file};
}

TEST(Rendezvous, RanksWithOtherKeysAreRefusedByName) {
  const support::TemporaryFolder folder;
  const SecurityOptions ours = with_new_key(folder.path() / "a.key"), other = with_new_key(folder.path() / "b.key");
  expect_refused(ours, other, "rank 0 and rank 1 have different keys; give all ranks the same key file");
  expect_refused(ours, {},
                 "rank 0 has security 'a key file' and rank 1 has 'the key of the job'; give all ranks the same");
  EXPECT_NE(fingerprint(ours), fingerprint(other));
  EXPECT_EQ(fingerprint({}), "");
}

TEST(Rendezvous, RanksWithOtherAuthoritiesAreRefusedByName) {
  support::Certificates ours, others("theirs");
  ours.add("one", "ours");
  others.add("two", "theirs");
  expect_refused(ours.options("one"), others.options("two"),
                 "rank 0 and rank 1 trust different authorities; give all ranks the same authority's file");
}

TEST(Rendezvous, WhatAFabricDoesNotProtectIsSaid) {
  for (const char* const transport : {"mpi", "ucx", "shm+mpi", "shm+ucx"})
    expect_all_told({.transport = transport, .security = {.encrypt_everywhere = true}},
                    "trusts its fabric and encrypts nothing; leave out --encrypt-everywhere, or use tcp");

  const support::TemporaryFolder folder;
  const auto said = [](const CommunicatorOptions& options) {
    const auto store = memory_store();
    testing::internal::CaptureStderr();
    try {
      Communicator::connect(*store, 0, 1, options);
    } catch (const Error&) {  // a build without ucx
    }
    return testing::internal::GetCapturedStderr();
  };
  const SecurityOptions security = with_new_key(folder.path() / "job.key");
  EXPECT_THAT(said({.transport = "shm+ucx", .security = security}),
              HasSubstr("the key protects the control plane only; ucx trusts its fabric and encrypts nothing"));
  EXPECT_EQ(said({.transport = "shm+tcp", .security = security}), "");
}

// What rank 0 of 2 says when the other has left `card` where the two meet.
std::string told_by_card(const std::function<std::string(const std::string& own)>& card) {
  return support::refusal(
      [&] {
        engine::meet({.rank = 0, .world = 2}, {.transport = "tcp"}, {},
                     [&](const std::string& mine, auto) {
                       return std::vector{mine, card(mine)};
                     },
                     std::chrono::steady_clock::now() + std::chrono::seconds(10), {});
      },
      ErrorKind::mismatch);
}

TEST(Rendezvous, AnotherVersionAndAnotherProgramAreNamed) {
  const std::string version = "10:ranvier 16";
  const auto of_version = [&](const std::string& other, const std::string& rest) {
    return told_by_card([&](const std::string& mine) {
      EXPECT_TRUE(mine.starts_with(version)) << "name the new version in this test";
      return other + (rest.empty() ? mine.substr(version.size()) : rest);
    });
  };
  EXPECT_EQ(of_version("9:ranvier 7", ""),
            "rank 1 runs another version of ranvier ('ranvier 7', this is 'ranvier 16'); install the same everywhere");
  EXPECT_THAT(of_version("10:ranvier 17", "0:"), HasSubstr("another version of ranvier ('ranvier 17'"))
      << "of fewer words";
  EXPECT_THAT(of_version("40:" + std::string(40, 'x'), ""), HasSubstr("('" + std::string(20, 'x') + "', this"));
  for (const char* const garbage :
       {"", ":", "hello", "9:ranvier", "99999999999999999999:x", "10:ranvier 16", "10:ranvier 165:x"})
    EXPECT_THAT(told_by_card([&](const std::string&) { return garbage; }),
                HasSubstr("rank 1 left in the store is not ranvier's"))
        << garbage;
}

// A card with another last field, the address between hosts. Fields have their lengths in front.
std::string with_address(const std::string& card, const std::string& address) {
  std::size_t last = 0;
  for (std::size_t at = 0; at < card.size();) {
    last = at;
    at = card.find(':', at) + 1 + std::stoul(card.substr(at));
  }
  return card.substr(0, last) + std::to_string(address.size()) + ":" + address;
}

// One that has met the others, but does not find them by the transport: all hear what it found.
TEST(Rendezvous, WhoFailsBeforeAllLinksStandIsNotWaitedFor) {
  for (const char* const transport : {"tcp", "udp", "grpc"}) {
    const auto store = memory_store();
    const auto before = std::chrono::steady_clock::now();
    const auto deadline = before + std::chrono::minutes(2);
    std::string reason;
    std::jthread lost([&] {
      const auto exchange = engine::exchange_through(*store, 1, 2);
      try {
        engine::meet({.rank = 1, .world = 2}, {.transport = transport}, {},
                     [&](const std::string& mine, auto until) {
                       auto all = exchange(mine, until);
                       all[0] = with_address(all[0], "nowhere");
                       return all;
                     },
                     deadline, {});
        ADD_FAILURE() << transport << " found an address that is none";
      } catch (const Error& why) {
        reason = why.what();
      }
    });
    std::string heard;
    try {
      engine::meet({.rank = 0, .world = 2}, {.transport = transport}, {}, engine::exchange_through(*store, 0, 2),
                   deadline, {});
      ADD_FAILURE() << transport << " connected with nobody";
    } catch (const Error& why) {
      heard = why.what();
    }
    lost.join();
    EXPECT_EQ(heard, reason) << transport;
    EXPECT_THAT(heard, HasSubstr("nowhere"));
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::minutes(1)) << "and not the join timeout";
  }
}

// Whoever looks into it learns that all have come when its own deadline has passed, as where the last rank came just
// before that.
class LateStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override { inner_->set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds) override {
    std::string value = inner_->get(key, 30s);
    if (key == "seen/1") std::this_thread::sleep_for(600ms);
    return value;
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return inner_->add(key, delta); }

 private:
  const std::shared_ptr<Store> inner_ = memory_store();
};

TEST(Rendezvous, RanksThatCameInTimeHaveTimeToConnect) {
  LateStore store;
  const auto join = [&](Rank rank) {
    const auto comm = Communicator::connect(store, rank, 2, {.join_timeout = 500ms});
    comm->barrier();
  };
  std::jthread other(join, 1);
  EXPECT_NO_THROW(join(0));
}

TEST(Rendezvous, WhatOneRankMisspellsIsNewsToAll) {
  expect_all_told({.transport = "tpc"}, "unknown transport 'tpc'");
  expect_all_told({.topology = "tours:3"}, "'tours'");
}

// Each is harmless on all ranks, and no two of them go together: a rank that gives up others sooner than they send
// heartbeats, say, would lose them while nothing is wrong.
TEST(Rendezvous, WhatOneRankHasOtherwiseIsNewsToAll) {
  const auto expect = [](const CommunicatorOptions& options, const std::string& ours, const std::string& theirs) {
    for (const std::string& sentence : told(options))
      EXPECT_EQ(sentence, "rank 0 has " + ours + " and rank 1 has " + theirs + "; give all ranks the same");
  };
  expect({.transport = "tcp"}, "transport 'auto'", "'tcp'");
  expect({.algorithm = "ring"}, "algorithm 'auto'", "'ring'");
  expect({.measure = false}, "measure 'yes'", "'no'");
  expect({.learn = true}, "learn 'no'", "'yes'");
  expect({.topology = "ring"}, "topology 'none'", "'ring'");
  expect({.suspect_after = 50ms, .dead_after = 100ms}, "dead-after '3000 ms, suspect after 1000 ms'",
         "'100 ms, suspect after 50 ms'");
  expect({.security = {.insecure = true}}, "security 'the key of the job'", "'insecure'");
  expect({.purpose = "a probe"}, "purpose ''", "'a probe'");
  expect({.epoch = 5}, "epoch '0'", "'5'");
}

TEST(Rendezvous, WhoDeclinesIsNewsToAll) {
  const auto store = memory_store();
  const Error why(ErrorKind::usage, "there is no codec 'bf61'");
  support::on_threads(world, [&](Rank rank) {
    if (rank == 1) return Communicator::decline(*store, rank, world, why);
    const auto join = [&] { Communicator::connect(*store, rank, world); };
    EXPECT_EQ(support::refusal(join, ErrorKind::config), "rank 1 cannot take part: there is no codec 'bf61'");
  });
}

TEST(Rendezvous, GroupsOfAsManyOtherRanksDoNotMeet) {
  const auto store = memory_store();
  support::on_threads(2, [&](Rank rank) {
    const std::vector<Rank> members = rank == 0 ? std::vector<Rank>{0, 1} : std::vector<Rank>{2, 3};
    const auto join = [&] { Communicator::connect(*store, rank, 2, {.world_ranks = members}); };
    EXPECT_THAT(support::refusal(join, ErrorKind::mismatch),
                HasSubstr("came to groups of other ranks; name the same ranks of a group on all of them"));
  });
}

// As torch's TCPStore, which is in the process of one of the ranks; and here the others are slow to read.
class KeptStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override { inner_->set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::string value = inner_->get(key, timeout);
    if (std::this_thread::get_id() != keeper && key.starts_with("seen/")) std::this_thread::sleep_for(200ms);
    if (gone) throw Error(ErrorKind::unreachable, "the store has gone");
    return value;
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return inner_->add(key, delta); }

  std::atomic<std::thread::id> keeper;
  std::atomic<bool> gone = false;

 private:
  const std::shared_ptr<Store> inner_ = memory_store();
};

TEST(Rendezvous, WhoKeepsTheStoreStaysUntilAllKnowWhyNobodyMeets) {
  const Error why(ErrorKind::usage, "there is no codec 'bf61'");
  for (const bool declines : {true, false}) {
    KeptStore store;
    support::on_threads(world, [&](Rank rank) {
      if (rank == 0) store.keeper = std::this_thread::get_id();
      const auto join = [&] {
        if (rank == 0 && declines) return Communicator::decline(store, rank, world, why);
        const auto met = Communicator::connect(store, rank, world, {.algorithm = rank == 0 ? "ring" : "auto"});
      };
      if (rank == 0 && declines)
        join();
      else if (declines)
        EXPECT_EQ(support::refusal(join, ErrorKind::config), "rank 0 cannot take part: there is no codec 'bf61'");
      else
        EXPECT_THAT(support::refusal(join, ErrorKind::mismatch), HasSubstr("rank 0 has algorithm 'ring'"));
      if (rank == 0) store.gone = true;
    });
  }
}

// Not even of ranks that have proved who they are.
TEST(Rendezvous, ALengthOfAGroupsCardThatCannotBeIsRefused) {
  for (const std::int64_t length : {std::int64_t{-1}, std::int64_t{1} << 40, std::int64_t{1} << 62}) {
    support::run_ranks(2, [&](Communicator& comm) {
      const auto deadline = std::chrono::steady_clock::now() + 30s;
      const std::array<std::int64_t, 1> told{length};
      if (comm.rank() == 1) {
        comm.send(told, 0, 9);
        std::vector<std::int64_t> all(2);
        comm.all_gather(told, all);
        return;
      }
      for (const auto& exchange : {engine::exchange_between(comm, {0, 1}, 9), engine::exchange_over(comm, {0, 1})})
        EXPECT_THAT(support::refusal([&] { exchange("of rank 0", deadline); }, ErrorKind::mismatch),
                    HasSubstr(fmt::format("rank 1 tells {} B of itself", length)));
    });
  }
}

// Whom rank 0 of 6 sends to in an all_reduce by node, when each rank is on the host that `host_of` names.
std::vector<Rank> partners(const std::function<Rank(Rank)>& host_of, const char* algorithm) {
  const auto store = memory_store();
  std::vector<Rank> found;
  const auto join = [&](Rank rank) {
    const auto comm = Communicator::connect(
        *store, rank, 6, {.transport = "shm+tcp", .measure = false, .node = std::to_string(host_of(rank))});
    std::array<std::uint64_t, 6> before{};
    for (Rank peer = 0; peer < 6; ++peer) before[static_cast<std::size_t>(peer)] = comm->bytes_sent_to(peer);
    std::vector<float> data(60, 1);
    comm->all_reduce(data, {.algorithm = algorithm});
    EXPECT_THAT(data, testing::Each(6));
    for (Rank peer = 0; rank == 0 && peer < 6; ++peer)
      if (comm->bytes_sent_to(peer) > before[static_cast<std::size_t>(peer)]) found.push_back(peer);
    comm->barrier();
  };
  {
    std::vector<std::jthread> others;
    for (Rank rank = 1; rank < 6; ++rank) others.emplace_back(join, rank);
    join(0);
  }
  return found;
}

TEST(Rendezvous, NodesAreTheHostsOfTheRanks) {
  const auto pairs = [](Rank rank) { return rank / 2; };
  const auto unequal = [](Rank rank) { return rank / 4; };
  const auto scattered = [](Rank rank) { return rank / 2 % 2; };
  EXPECT_EQ(partners(pairs, "hierarchical"), (std::vector<Rank>{1, 2, 4}));
  EXPECT_EQ(partners(pairs, "hierarchical:3"), (std::vector<Rank>{1, 2, 3})) << "who names a number gets it";
  EXPECT_EQ(partners(unequal, "hierarchical"), (std::vector<Rank>{1, 2, 4})) << "4 and 2: leaders, and a tree below";
  EXPECT_EQ(partners(scattered, "hierarchical"), (std::vector<Rank>{1, 2, 3})) << "what it chooses by itself";
}

}  // namespace
}  // namespace ranvier

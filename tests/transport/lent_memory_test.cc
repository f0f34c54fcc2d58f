// Memory that peers read where it lies: found, mapped, freed and used again; and what a peer with a broken table gets.
#include "transport/lent_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/slot_ring.h"

namespace ranvier::transport {
namespace {

constexpr std::size_t page = 4096;

struct OneRank {
  std::shared_ptr<RegionTable> table = std::make_shared<RegionTable>();
  std::shared_ptr<OwnMemory> own = std::make_shared<OwnMemory>(*table, table);
  LenderMemory peer{1, *table};  // as another rank sees it
};

ErrorKind kind_of(LenderMemory& peer, const LentBytes& lent) {
  try {
    peer.view(lent);
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::usage;
}

TEST(LentMemory, IsZeroAtFirstAndSeenByThePeerAsItChanges) {
  OneRank rank;
  const auto memory = rank.own->allocate(3 * page + 5);
  const ConstBytes part(memory.get() + 100, 2 * page);
  for (const std::byte each : part) ASSERT_EQ(each, std::byte{0});
  const auto lent = rank.own->find(part);
  ASSERT_TRUE(lent);
  const ConstBytes view = rank.peer.view(*lent);
  EXPECT_NE(view.data(), part.data());
  memory[100 + page] = std::byte{7};
  EXPECT_EQ(view.size(), part.size());
  EXPECT_EQ(view[page], std::byte{7});
}

TEST(LentMemory, FindsOnlyWhatLiesInOneRegion) {
  OneRank rank;
  const auto memory = rank.own->allocate(page);
  std::vector<std::byte> other(page);
  EXPECT_TRUE(rank.own->find({memory.get(), page}));
  EXPECT_FALSE(rank.own->find({memory.get(), page + 1}));
  EXPECT_FALSE(rank.own->find({memory.get() - 1, 2}));
  EXPECT_FALSE(rank.own->find(other));
}

TEST(LentMemory, UsesARowAgainWithoutConfusingThePeer) {
  OneRank rank;
  for (int life = 1; life <= 200; ++life) {  // more often than there are rows
    const auto memory = rank.own->allocate(page);
    memory[0] = static_cast<std::byte>(life);
    const auto lent = rank.own->find({memory.get(), page});
    ASSERT_TRUE(lent);
    ASSERT_EQ(rank.peer.view(*lent)[0], static_cast<std::byte>(life));
  }
}

TEST(LentMemory, IsRefusedBeyondItsRows) {
  OneRank rank;
  std::vector<std::shared_ptr<std::byte[]>> all;
  for (std::uint32_t i = 0; i < most_regions; ++i) all.push_back(rank.own->allocate(1));
  try {
    rank.own->allocate(1);
    FAIL() << "there was a row too many";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
  }
  all.pop_back();
  EXPECT_NO_THROW(rank.own->allocate(1));
}

TEST(LentMemory, ThatNoMachineHasIsRefusedByItsSize) {
  OneRank rank;
  for (const std::size_t bytes : {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 63}) {
    try {
      rank.own->allocate(bytes);
      ADD_FAILURE() << bytes << " bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::config);
      EXPECT_THAT(error.what(), testing::HasSubstr("92233720368547"));
    }
  }
}

TEST(LentMemory, OutlivesItsRank) {
  std::shared_ptr<std::byte[]> memory;
  {
    OneRank rank;
    memory = rank.own->allocate(page);
  }
  memory[page - 1] = std::byte{1};
  memory.reset();
}

TEST(LentMemory, BelievesNothingThatAPeerWrote) {
  OneRank rank;
  const auto memory = rank.own->allocate(2 * page);
  const LentBytes good = *rank.own->find({memory.get(), page});
  const auto with = [&](auto change) {
    LentBytes lent = good;
    change(lent);
    return lent;
  };
  EXPECT_EQ(kind_of(rank.peer, with([](LentBytes& each) { each.region = most_regions; })), ErrorKind::internal);
  EXPECT_EQ(kind_of(rank.peer, with([](LentBytes& each) { each.bytes = 2 * page + 1; })), ErrorKind::internal);
  EXPECT_EQ(kind_of(rank.peer, with([](LentBytes& each) { each.offset = page + 1; })), ErrorKind::internal);
  EXPECT_EQ(kind_of(rank.peer, with([](LentBytes& each) { each.offset = ~std::uint64_t{0}; })), ErrorKind::internal);
  EXPECT_EQ(kind_of(rank.peer, with([](LentBytes& each) { each.bytes = 0; })), ErrorKind::internal);
  EXPECT_EQ(kind_of(rank.peer, with([](LentBytes& each) { each.life = 9; })), ErrorKind::unreachable);
  EXPECT_EQ(kind_of(rank.peer, with([](LentBytes& each) { each.region = 5; })), ErrorKind::unreachable);
  rank.table->entries[good.region].bytes = page;  // not the size of the file
  LenderMemory another(1, *rank.table);
  EXPECT_EQ(kind_of(another, good), ErrorKind::unreachable);
}

TEST(LentMemory, SaysThatItWasFreedTooEarly) {
  OneRank rank;
  auto memory = rank.own->allocate(page);
  const LentBytes lent = *rank.own->find({memory.get(), page});
  memory.reset();
  EXPECT_EQ(kind_of(rank.peer, lent), ErrorKind::unreachable);
}

// Where a peer has it mapped still, too.
TEST(LentMemory, IsGivenBackWhenItIsFreed) {
  OneRank rank;
  auto memory = rank.own->allocate(page);
  const ConstBytes view = rank.peer.view(*rank.own->find({memory.get(), page}));
  unsigned char resident = 0;
  ASSERT_EQ(mincore(const_cast<std::byte*>(view.data()), page, &resident), 0);
  EXPECT_EQ(resident & 1, 1);
  memory.reset();
  ASSERT_EQ(mincore(const_cast<std::byte*>(view.data()), page, &resident), 0);
  EXPECT_EQ(resident & 1, 0);
}

// Which ends with destructors.
TEST(LentMemory, IsNotGivenBackByAProcessThatWasForkedOff) {
  OneRank rank;
  auto memory = rank.own->allocate(page);
  memory[0] = std::byte{1};
  const pid_t child = fork();
  if (child == 0) {
    memory.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory[0], std::byte{1});
}

// ---- Over a transport.

TEST(LentMemory, IsNotCopiedAndComesBackSliceBySlice) {
  auto world = loopback_world(2);
  PeerMemory* const lender = world[0]->peer_memory();
  ASSERT_NE(lender, nullptr);
  constexpr std::size_t slice = PeerMemory::least_lent;
  const auto memory = lender->allocate(3 * slice);
  const std::array<std::byte, 16> head{std::byte{42}};
  EXPECT_EQ(lender->try_lend(1, 0, head, {memory.get(), slice}, false), head.size() + slice);
  EXPECT_EQ(lender->try_lend(1, 0, {}, {memory.get() + slice, slice}, false), slice);
  EXPECT_EQ(lender->try_lend(1, 0, {}, {memory.get() + 2 * slice, 100}, false), 100u);  // copied: it is too short
  EXPECT_EQ(lender->lent(1, 0), head.size() + 2 * slice + 100);
  EXPECT_FALSE(world[0]->sent(1, 0));
  EXPECT_EQ(lender->lent(1, 1), 0u);  // another lane

  ConstBytes view = world[1]->try_recv(0, 0, {});
  ASSERT_EQ(view.size(), head.size());
  EXPECT_EQ(view[0], std::byte{42});
  world[1]->release(0, 0, view.size());
  view = world[1]->try_recv(0, 0, {});
  ASSERT_EQ(view.size(), slice);
  memory[1] = std::byte{9};  // not copied: the reader sees it
  EXPECT_EQ(view[1], std::byte{9});
  world[1]->release(0, 0, 10);
  EXPECT_EQ(lender->lent(1, 0), head.size() + 2 * slice + 100);
  world[1]->release(0, 0, slice - 10);
  EXPECT_EQ(lender->lent(1, 0), slice + 100);
  world[1]->try_recv(0, 0, {});
  world[1]->release(0, 0, slice);
  EXPECT_EQ(lender->lent(1, 0), 0u);
  EXPECT_TRUE(world[0]->sent(1, 0));
  EXPECT_EQ(world[1]->try_recv(0, 0, {}).size(), 100u);
}

// Once cancel() returns, the program may write there: what was being read may be anything.
TEST(LentMemory, IsNotBelievedOnceItsOwnerGaveUp) {
  auto world = loopback_world(2);
  constexpr std::size_t slice = PeerMemory::least_lent;
  const auto memory = world[0]->peer_memory()->allocate(2 * slice);
  world[0]->peer_memory()->try_lend(1, 0, {}, {memory.get(), slice}, false);
  world[0]->peer_memory()->try_lend(1, 0, {}, {memory.get() + slice, slice}, false);
  world[1]->try_recv(0, 0, {});
  world[0]->cancel();
  for (int again = 0; again < 2; ++again) {
    try {
      world[1]->release(0, 0, again == 0 ? slice : world[1]->try_recv(0, 0, {}).size());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
      EXPECT_EQ(error.culprit(), 0);
    }
  }
}

TEST(LentMemory, IsLentNoFasterThanThereAreSlots) {
  auto world = loopback_world(2);
  PeerMemory* const lender = world[0]->peer_memory();
  const auto memory = lender->allocate(PeerMemory::least_lent);
  const ConstBytes body(memory.get(), PeerMemory::least_lent);
  for (std::uint32_t i = 0; i < slots_per_ring; ++i) ASSERT_EQ(lender->try_lend(1, 0, {}, body, false), body.size());
  EXPECT_EQ(lender->try_lend(1, 0, {}, body, false), 0u);
  world[1]->try_recv(0, 0, {});
  world[1]->release(0, 0, body.size());
  EXPECT_EQ(lender->try_lend(1, 0, {}, body, false), body.size());
}

TEST(LentMemory, IsNotTakenFromARankThatHasNone) {
  RingControl control{};
  std::array<SlotLine, slots_per_ring> lines{};
  std::vector<std::byte> areas(RingMemory::payload_bytes(page));
  const RingMemory memory{.control = &control, .lines = lines.data(), .payload = areas.data(), .slice_bytes = page};
  RingWriter writer(memory);
  RingReader reader(memory);
  writer.try_lend({}, {.bytes = page});
  EXPECT_THROW(reader.peek(), Error);
}

}  // namespace
}  // namespace ranvier::transport

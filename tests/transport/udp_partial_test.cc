// Messages that are sent once: what arrives is right and counted, nothing is repeated, and lanes beside them lose
// nothing.
#include "transport/udp_partial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "ranvier/error.h"
#include "transport/udp_path.h"
#include "transport/udp_world.h"

namespace ranvier::transport {
namespace {

using Piece = UdpPartialReceives::Piece;
using namespace std::chrono_literals;
using support::PathOptions;
using support::random_bytes;
using support::UdpPath;

constexpr std::size_t piece = PartialMessages::piece_bytes;

// All of a message.
void add(UdpPartialSends& sends, std::uint64_t ticket, ConstBytes message) {
  sends.add(ticket, message, {0, PartialMessages::pieces_of(message.size())});
}
void add_whole(UdpPartialSends& sends, std::uint64_t ticket, ConstBytes message) {
  const auto copy = std::make_shared<std::vector<std::byte>>(message.begin(), message.end());
  sends.add_whole(ticket, *copy, copy, {0, PartialMessages::pieces_of(message.size())});
}

bool piece_is(const PartialMessages::Message& message, const std::vector<std::byte>& sent, std::size_t index) {
  const std::size_t begin = index * piece, bytes = std::min(piece, sent.size() - begin);
  return std::memcmp(message.bytes.data() + begin, sent.data() + begin, bytes) == 0;
}

// Both ends send each other messages and fill a lane; what is here when all packets have left is taken.
double share_that_arrives(const PathOptions& options) {
  UdpPath path(options);
  constexpr std::uint32_t messages = 5;
  std::vector<std::vector<std::byte>> sent;
  for (std::uint32_t ticket = 0; ticket < messages; ++ticket)
    sent.push_back(random_bytes(ticket * 50'000 + 1, ticket + options.seed));
  const auto exact = random_bytes(300'000, options.seed + 99);
  for (std::uint32_t ticket = 0; ticket < messages; ++ticket)
    for (std::size_t end = 0; end < 2; ++end) add(path.end(end).partial_sends(), ticket, sent[ticket]);
  std::array<std::size_t, 2> accepted{}, received{};
  const bool ended = path.run(
      [&] {
        for (std::size_t end = 0; end < 2; ++end) {
          accepted[end] += path.end(end).try_send(0, {}, std::span(exact).subspan(accepted[end]));
          const ConstBytes view = path.end(end).view(0);
          EXPECT_TRUE(std::ranges::equal(view, std::span(exact).subspan(received[end], view.size())));
          received[end] += view.size();
          path.end(end).release(0, view.size());
        }
        return std::ranges::all_of(received, [&](std::size_t bytes) { return bytes == exact.size(); }) &&
               !path.end(0).partial_sends().has_next() && !path.end(1).partial_sends().has_next();
      },
      60);
  EXPECT_TRUE(ended);
  const double until = path.seconds() + 1;  // for what is still on its way
  path.run([&] { return path.seconds() > until; }, until + 1);
  std::size_t due = 0, here = 0;
  for (std::size_t end = 0; end < 2; ++end)
    for (std::uint32_t ticket = 0; ticket < messages; ++ticket) {
      auto& receives = path.end(end).partial_receives();
      const auto arrival = receives.arrival(ticket, sent[ticket].size());
      const auto message = receives.take(ticket, sent[ticket].size());
      EXPECT_EQ(arrival.pieces, message.pieces);
      EXPECT_EQ(arrival.last_is_here, message.arrived.back() != 0);
      EXPECT_EQ(message.arrived.size(), PartialMessages::pieces_of(sent[ticket].size()));
      EXPECT_EQ(message.pieces, static_cast<std::size_t>(std::ranges::count(message.arrived, 1)));
      for (std::size_t i = 0; i < message.arrived.size(); ++i)
        EXPECT_TRUE(message.arrived[i] == 0 || piece_is(message, sent[ticket], i));
      due += message.arrived.size();
      here += message.pieces;
    }
  return static_cast<double>(here) / static_cast<double>(due);
}

TEST(UdpPartial, all_arrives_where_nothing_is_lost) {
  for (unsigned seed = 0; seed < 4; ++seed)
    EXPECT_EQ(share_that_arrives({.reordered = seed % 2 * 0.1, .duplicated = seed / 2 * 0.1, .seed = seed}), 1);
}

TEST(UdpPartial, what_the_path_loses_stays_lost_and_lanes_beside_it_lose_nothing) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    const double share = share_that_arrives({.loss = 0.1, .reordered = seed % 2 * 0.1, .seed = seed});
    EXPECT_GT(share, 0.8);
    EXPECT_LT(share, 0.97);
  }
}

TEST(UdpPartial, what_has_to_be_whole_is_sent_again_until_it_is) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    UdpPath path({.loss = 0.05 * (seed % 3), .reordered = seed % 2 * 0.1, .duplicated = seed % 2 * 0.1, .seed = seed});
    auto message = random_bytes(400'123, seed);
    const auto sent = message;
    for (std::uint32_t ticket = 0; ticket < 3; ++ticket) add_whole(path.end(0).partial_sends(), ticket, message);
    std::ranges::fill(message, std::byte{0});  // it was copied
    path.end(0).partial_sends().withdraw_lent();
    auto& receives = path.end(1).partial_receives();
    const auto here = [&](std::uint32_t ticket) {
      return receives.arrival(ticket, sent.size()).pieces == PartialMessages::pieces_of(sent.size());
    };
    EXPECT_TRUE(path.run([&] { return here(0) && here(1) && here(2) && path.end(0).unacknowledged() == 0; }, 60));
    for (std::uint32_t ticket = 0; ticket < 3; ++ticket) {
      const auto received = receives.take(ticket, sent.size());
      EXPECT_TRUE(std::equal(sent.begin(), sent.end(), received.bytes.begin()));
    }
    EXPECT_FALSE(path.end(0).partial_sends().has_next());
  }
}

std::uint64_t place(std::uint32_t ticket, std::uint32_t first) { return std::uint64_t{ticket} << 32 | first; }

TEST(UdpPartial, packets_carry_whole_pieces_and_the_rest_at_the_end) {
  const auto bytes = random_bytes(10 * piece + 7, 1);
  for (const std::size_t most : {piece, piece + 500, 3 * piece + 1, 20 * piece}) {
    UdpPartialSends sends;
    add(sends, 3, bytes);
    std::size_t at = 0;
    while (sends.has_next()) {
      const auto next = sends.next(most);
      EXPECT_LE(next.bytes.size(), most);
      EXPECT_EQ(next.place, place(3, static_cast<std::uint32_t>(at / piece)));
      EXPECT_EQ(next.bytes.data(), bytes.data() + at);
      at += next.bytes.size();
      EXPECT_TRUE(at % piece == 0 || at == bytes.size());
      sends.sent(next);
    }
    EXPECT_EQ(at, bytes.size());
  }
}

TEST(UdpPartial, nothing_of_a_withdrawn_message_is_sent_and_the_next_one_is) {
  const auto bytes = random_bytes(4 * piece, 1);
  UdpPartialSends sends;
  add(sends, 0, bytes);
  add(sends, 1, bytes);
  sends.sent(sends.next(piece));
  sends.withdraw(0);
  EXPECT_EQ(sends.next(piece).place, place(1, 0));
  sends.withdraw(1);
  EXPECT_FALSE(sends.has_next());
}

TEST(UdpPartial, what_was_lost_of_a_whole_message_is_sent_again_once_and_what_was_only_late_is_not) {
  const auto bytes = random_bytes(4 * piece, 1);
  UdpPartialSends sends;
  add_whole(sends, 0, bytes);
  for (int i = 0; i < 4; ++i) sends.sent(sends.next(piece));
  for (int probe = 0; probe < 3; ++probe) sends.lost(place(0, 0), piece);
  sends.lost(place(0, 2), piece);
  sends.acknowledged(place(0, 2), piece);
  sends.acknowledged(place(0, 1), piece);
  sends.lost(place(0, 1), piece);
  std::vector<std::uint64_t> order;
  for (; sends.has_next(); sends.sent(sends.next(piece))) order.push_back(sends.next(piece).place);
  EXPECT_EQ(order, std::vector{place(0, 0)});
}

TEST(UdpPartial, what_has_to_be_whole_goes_before_what_is_later_and_has_not_begun) {
  const auto bytes = random_bytes(2 * piece, 1);
  UdpPartialSends sends;
  add(sends, 0, bytes);
  sends.sent(sends.next(piece));
  add(sends, 2, bytes);
  add_whole(sends, 1, bytes);
  add_whole(sends, 3, bytes);
  std::vector<std::uint64_t> order;
  for (; sends.has_next(); sends.sent(sends.next(2 * piece))) order.push_back(sends.next(2 * piece).place);
  EXPECT_EQ(order, (std::vector{place(0, 1), place(1, 0), place(2, 0), place(3, 0)}));
}

TEST(UdpPartial, a_message_may_be_added_piece_by_piece_and_is_kept_until_all_of_it_is_there) {
  constexpr std::size_t pieces = 40;
  UdpPath path({.loss = 0.1, .reordered = 0.1, .seed = 5});
  auto message = std::make_shared<std::vector<std::byte>>(random_bytes(pieces * piece - 100, 5));
  const std::vector<std::byte> sent = *message;
  const std::weak_ptr<std::vector<std::byte>> kept = message;
  UdpPartialSends& sends = path.end(0).partial_sends();
  auto& receives = path.end(1).partial_receives();
  const auto here = [&] { return receives.arrival(0, sent.size()).pieces; };
  // Every third one first, then all that lie between, and the last ones.
  for (std::size_t i = 0; i + 2 < pieces; i += 3) sends.add_whole(0, *message, message, {i, 1});
  EXPECT_TRUE(path.run([&] { return here() == 13 && path.end(0).unacknowledged() == 0; }, 60));
  for (std::size_t i = 1; i + 1 < pieces; i += 3) sends.add_whole(0, *message, message, {i, 2});
  sends.add_whole(0, *message, message, {39, 1});
  message.reset();
  EXPECT_GT(path.end(0).unacknowledged(), 0U);
  EXPECT_FALSE(kept.expired());
  EXPECT_TRUE(path.run([&] { return here() == pieces && path.end(0).unacknowledged() == 0; }, 60));
  EXPECT_TRUE(kept.expired());
  EXPECT_EQ(receives.arrival(0, sent.size()).end, pieces);
  const auto received = receives.take(0, sent.size());
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), received.bytes.begin()));
}

TEST(UdpPartial, what_follows_of_a_message_goes_before_others_of_its_kind) {
  const auto bytes = random_bytes(6 * piece, 1);
  UdpPartialSends sends;
  sends.add(0, bytes, {0, 2});
  add(sends, 2, bytes);
  sends.add(0, bytes, {2, 2});
  sends.sent(sends.next(2 * piece));
  add_whole(sends, 1, bytes);
  sends.sent(sends.next(2 * piece));
  sends.add(0, bytes, {4, 2});
  std::vector<std::uint64_t> order;
  for (; sends.has_next(); sends.sent(sends.next(6 * piece))) order.push_back(sends.next(6 * piece).place);
  EXPECT_EQ(order, (std::vector{place(0, 4), place(1, 0), place(2, 0)}));
}

TEST(UdpPartial, what_comes_before_it_is_asked_for_is_kept_and_what_comes_after_it_was_taken_is_not) {
  const auto bytes = random_bytes(3 * piece + 5, 1);
  UdpPartialReceives receives;
  const auto now = UdpPartialReceives::Time() + 1s;
  EXPECT_EQ(receives.arrived(now, place(7, 3), std::span(bytes).subspan(3 * piece)), Piece::news);
  EXPECT_EQ(receives.arrived(now + 2ms, place(7, 0), std::span(bytes).first(piece)), Piece::news);
  EXPECT_EQ(receives.arrived(now + 3ms, place(7, 0), std::span(bytes).first(piece)), Piece::useless) << "it is here";
  const auto arrival = receives.arrival(7, bytes.size());
  EXPECT_EQ(arrival.pieces, 2U);
  EXPECT_TRUE(arrival.last_is_here);
  EXPECT_EQ(arrival.first_at, now);
  EXPECT_EQ(arrival.newest_at, now + 2ms);
  const auto message = receives.take(7, bytes.size());
  EXPECT_EQ(message.arrived, (std::vector<std::uint8_t>{1, 0, 0, 1}));
  EXPECT_TRUE(piece_is(message, bytes, 0) && piece_is(message, bytes, 3));
  EXPECT_EQ(receives.arrived(now, place(7, 1), std::span(bytes).first(piece)), Piece::useless);
}

TEST(UdpPartial, memory_that_was_used_before_counts_nothing_as_here) {
  UdpPartialReceives receives;
  const auto bytes = random_bytes(2 * piece, 1);
  EXPECT_EQ(receives.arrived({}, place(0, 0), bytes), Piece::news);
  receives.give_back(receives.take(0, bytes.size()));
  const auto next = receives.take(1, bytes.size());
  EXPECT_EQ(next.pieces, 0U);
  EXPECT_EQ(next.arrived, (std::vector<std::uint8_t>{0, 0}));
}

TEST(UdpPartial, what_does_not_fit_a_message_is_refused) {
  const auto bytes = random_bytes(4 * piece, 1);
  UdpPartialReceives receives;
  receives.arrival(1, 3 * piece);
  EXPECT_EQ(receives.arrived({}, place(1, 3), std::span(bytes).first(piece)), Piece::refused) << "beyond its end";
  EXPECT_EQ(receives.arrived({}, place(1, 1), std::span(bytes).first(10)), Piece::refused) << "short, in its middle";
  EXPECT_EQ(receives.arrived({}, place(1, 0xffffffff), std::span(bytes).first(piece)), Piece::refused);
  EXPECT_EQ(receives.arrival(1, 3 * piece).pieces, 0U);

  EXPECT_EQ(receives.arrived({}, place(2, 2), std::span(bytes).first(10)), Piece::news);
  EXPECT_EQ(receives.arrived({}, place(2, 3), std::span(bytes).first(piece)), Piece::refused) << "behind a short one";
  EXPECT_THROW(receives.arrival(2, 2 * piece), Error);
  EXPECT_EQ(receives.arrived({}, place(3, 2), std::span(bytes).first(piece)), Piece::news);
  EXPECT_EQ(receives.arrived({}, place(3, 1), std::span(bytes).first(10)), Piece::refused)
      << "short, before a whole one";
}

TEST(UdpPartial, messages_that_nobody_asks_for_are_kept_up_to_a_limit) {
  const auto bytes = random_bytes(piece, 1);
  UdpPartialReceives receives({.messages = 10});
  for (std::uint32_t ticket = 0; ticket < 10; ++ticket)
    EXPECT_EQ(receives.arrived({}, place(ticket, 0), bytes), Piece::news);
  EXPECT_EQ(receives.arrived({}, place(1000, 0), bytes), Piece::refused);
  receives.take(0, piece);
  EXPECT_EQ(receives.arrived({}, place(1000, 0), bytes), Piece::news);
}

TEST(UdpPartial, a_peer_that_keeps_to_no_credit_gets_no_memory_beyond_it) {
  constexpr std::uint32_t pieces = 100;
  const auto bytes = random_bytes(piece, 1);
  UdpPartialReceives receives({.bytes = pieces * piece});
  EXPECT_EQ(receives.arrived({}, place(0, 0xffffffff), bytes), Piece::refused);
  EXPECT_EQ(receives.arrived({}, place(1, pieces), bytes), Piece::refused);
  EXPECT_EQ(receives.arrived({}, place(2, pieces / 2 - 1), bytes), Piece::news) << "with what lies before it";
  EXPECT_EQ(receives.arrived({}, place(3, pieces / 2), bytes), Piece::refused);
  EXPECT_EQ(receives.arrived({}, place(3, pieces / 2 - 1), bytes), Piece::news);
  EXPECT_EQ(receives.arrived({}, place(4, 0), bytes), Piece::refused);
  receives.arrival(3, pieces * piece);
  EXPECT_EQ(receives.arrived({}, place(4, 0), bytes), Piece::news);
  EXPECT_EQ(receives.arrived({}, place(3, pieces - 1), bytes), Piece::news) << "this one was asked for";
}

TEST(UdpPartial, of_what_nobody_has_asked_for_no_more_leaves_than_there_is_credit) {
  const auto bytes = random_bytes(10 * piece, 1);
  UdpPartialSends sends({.bytes = 15 * piece, .messages = 3});
  const auto leaves = [&] {
    std::vector<std::uint64_t> places;
    for (; sends.has_next(); sends.sent(sends.next(4 * piece))) places.push_back(sends.next(4 * piece).place);
    return places;
  };
  add(sends, 0, bytes);
  add(sends, 2, bytes);
  EXPECT_EQ(leaves(), (std::vector{place(0, 0), place(0, 4), place(0, 8), place(2, 0), place(2, 4)}));
  EXPECT_TRUE(sends.waits_for_credit());
  sends.asked_below(1);
  add_whole(sends, 1, bytes);
  EXPECT_EQ(leaves(), (std::vector{place(2, 5), place(2, 9), place(1, 0), place(1, 4)})) << "5 pieces of it fit";
  EXPECT_TRUE(sends.waits_for_credit());
  sends.asked_below(2);
  EXPECT_EQ(leaves(), (std::vector{place(1, 5), place(1, 9)})) << "though a later one has none";
  EXPECT_FALSE(sends.waits_for_credit());
  for (std::uint32_t ticket = 3; ticket < 6; ++ticket) add(sends, ticket, std::span(bytes).first(piece));
  EXPECT_EQ(leaves(), (std::vector{place(3, 0), place(4, 0)})) << "three messages in all";
  sends.asked_below(3);
  EXPECT_EQ(leaves(), (std::vector{place(5, 0)}));
}

TEST(UdpPartial, messages_go_on_when_the_32_bits_that_packets_have_for_tickets_are_used_up) {
  UdpPath path({.loss = 0.1, .reordered = 0.1, .seed = 3});
  const auto message = random_bytes(20 * piece + 1, 1);
  constexpr std::uint64_t all = std::uint64_t{1} << 32;
  for (const std::uint64_t ticket : {std::uint64_t{0}, all / 4, all / 2, 3 * all / 4, all - 1, all, all + 1}) {
    const auto arrival = [&] { return path.end(1).arrival(path.now(), ticket, message.size()); };
    EXPECT_EQ(arrival().pieces, 0U) << ticket;
    add_whole(path.end(0).partial_sends(), ticket, message);
    EXPECT_TRUE(path.run([&] { return arrival().pieces == 21 && path.end(0).unacknowledged() == 0; }, 60)) << ticket;
    const auto received = path.end(1).partial_receives().take(ticket, message.size());
    EXPECT_TRUE(std::equal(message.begin(), message.end(), received.bytes.begin()));
  }
}

TEST(UdpPartial, credit_goes_on_when_the_32_bits_that_acknowledgements_have_for_tickets_are_used_up) {
  const auto bytes = random_bytes(piece, 1);
  constexpr std::uint64_t all = std::uint64_t{1} << 32;
  UdpPartialSends sends({.bytes = piece, .messages = 1});
  for (const std::uint32_t lower : {1U << 30, 2U << 30, 3U << 30, 1U}) sends.asked_below(lower);
  for (std::uint64_t ticket = all; ticket < all + 3; ++ticket) add(sends, ticket, bytes);
  sends.sent(sends.next(piece));
  EXPECT_FALSE(sends.waits_for_credit()) << "it had been asked for";
  sends.sent(sends.next(piece));
  EXPECT_TRUE(sends.waits_for_credit());
  sends.asked_below(0xffffffff);
  EXPECT_TRUE(sends.waits_for_credit()) << "that was said before";
  sends.asked_below(2);
  EXPECT_FALSE(sends.waits_for_credit());
}

// The receiver asks late for a message that is longer than the credit: nothing of it is lost for that.
TEST(UdpPartial, a_message_waits_for_credit_and_arrives) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    UdpPath path({.loss = seed % 2 * 0.05, .ring_bytes = 64 << 10, .seed = seed});
    constexpr std::size_t credit = lane_count * (64 << 10);
    const auto message = random_bytes(3 * credit + 17, seed);
    add(path.end(0).partial_sends(), 0, message);
    path.run([&] { return path.seconds() > 1; }, 2);
    add_whole(path.end(0).partial_sends(), 1, message);
    EXPECT_TRUE(path.end(0).partial_sends().waits_for_credit());
    const auto pieces = PartialMessages::pieces_of(message.size());
    const auto first = path.end(1).arrival(path.now(), 0, message.size());
    EXPECT_GT(first.pieces, 0U);
    EXPECT_LE(first.pieces, credit / piece);
    EXPECT_EQ(first.newest_at, path.now()) << "the silence was the receiver's own";
    EXPECT_EQ(first.first_at, path.now()) << "and is no time that messages take";
    const auto here = [&](std::uint32_t ticket) {
      return path.end(1).arrival(path.now(), ticket, message.size()).pieces;
    };
    const bool loses = seed % 2 != 0;
    EXPECT_TRUE(path.run([&] { return here(0) >= (loses ? pieces * 8 / 10 : pieces) && here(1) == pieces; }, 30));
    EXPECT_TRUE(path.run([&] { return path.end(0).unacknowledged() == 0; }, 60));
  }
}

// Of several sums that are under way together one waits for what was lost: the others get what they wait for, though
// the second message of the first one is not even there yet, and each is longer than the credit.
TEST(UdpPartial, messages_that_are_expected_wait_for_none_before_them) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    UdpPath path({.queue_bytes = 16 << 20, .loss = seed % 2 * 0.05, .ring_bytes = 64 << 10, .seed = seed});
    constexpr std::size_t credit = lane_count * (64 << 10);
    constexpr std::uint32_t sums = 4;
    const auto message = random_bytes(2 * credit + 17, seed);
    for (std::uint32_t ticket = 0; ticket < 2 * sums; ++ticket) path.end(1).expect(path.now(), ticket, message.size());
    for (std::uint32_t sum = 0; sum < sums; ++sum) add(path.end(0).partial_sends(), 2 * sum, message);
    add_whole(path.end(0).partial_sends(), 2 * sums - 1, message);
    const auto pieces = PartialMessages::pieces_of(message.size());
    const auto here = [&](std::uint32_t ticket) {
      return path.end(1).partial_receives().arrival(ticket, message.size()).pieces;
    };
    EXPECT_TRUE(path.run([&] { return here(2 * sums - 1) == pieces && !path.end(0).partial_sends().has_next(); }, 30));
    const double until = path.seconds() + 1;  // for what is still on its way
    path.run([&] { return path.seconds() > until; }, until + 1);
    for (std::uint32_t sum = 0; sum < sums; ++sum) EXPECT_GE(here(2 * sum), seed % 2 != 0 ? pieces * 8 / 10 : pieces);
    EXPECT_EQ(here(1), 0U);
  }
}

// What two messages that are asked for late and in the wrong order have used up of the credit comes back with the one
// that had been left out, in an acknowledgement of its own: nothing else may ever travel that way.
TEST(UdpPartial, a_sender_without_credit_hears_at_once_of_messages_that_are_asked_for) {
  UdpPath path({.ring_bytes = 64 << 10});
  constexpr std::size_t credit = lane_count * (64 << 10);
  const auto message = random_bytes(2 * credit, 1);
  path.end(1).expect(path.now(), 0, piece);
  path.end(1).expect(path.now(), 2, message.size());
  add(path.end(0).partial_sends(), 2, message);
  path.run([&] { return path.seconds() > 1; }, 2);
  ASSERT_TRUE(path.end(0).partial_sends().waits_for_credit());
  EXPECT_GT(path.end(1).due(path.now()), path.now());
  path.end(1).expect(path.now(), 1, piece);
  EXPECT_EQ(path.end(1).due(path.now()), path.now());
  OutgoingPacket news;
  ASSERT_TRUE(path.end(1).next_packet(path.now(), news));
  EXPECT_EQ(news.payload.size(), 0U);
  EXPECT_FALSE(path.end(1).next_packet(path.now(), news)) << "one is enough";
}

TEST(UdpPartial, what_is_expected_takes_no_memory_of_the_credit_and_may_be_refused_when_it_is_looked_at) {
  const auto bytes = random_bytes(4 * piece, 1);
  UdpPartialReceives receives({.bytes = 4 * piece, .messages = 2});
  EXPECT_EQ(receives.arrived({}, place(0, 0), bytes), Piece::news) << "all of the credit";
  receives.expect(1, bytes.size());
  EXPECT_EQ(receives.arrived({}, place(1, 0), bytes), Piece::news);
  EXPECT_EQ(receives.arrived({}, place(2, 0), bytes), Piece::refused);
  receives.expect(0, bytes.size());
  EXPECT_EQ(receives.asked_below(), 2U);
  EXPECT_EQ(receives.arrived({}, place(2, 0), std::span(bytes).first(2 * piece + 3)), Piece::news);
  receives.expect(2, bytes.size());
  EXPECT_EQ(receives.arrived({}, place(2, 3), std::span(bytes).subspan(3 * piece)), Piece::refused);
  EXPECT_THROW(receives.arrival(2, bytes.size()), Error) << "it had ended before";
  EXPECT_EQ(receives.take(1, bytes.size()).pieces, 4U);
  EXPECT_EQ(receives.take(0, bytes.size()).pieces, 4U);
}

}  // namespace
}  // namespace ranvier::transport

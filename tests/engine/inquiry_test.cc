// What ranks ask each other before an operation runs out of time: on a network that is a queue.
#include "engine/inquiry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "engine/control_watch.h"
#include "engine/siblings.h"

namespace ranvier::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using State = Answer::State;

const ControlWatch::Time beginning{};

TEST(ControlHops, reach_every_rank_over_neighbours_in_few_steps) {
  for (Rank world = 2; world <= 70; ++world)
    for (Rank to = 1; to < world; ++to) {
      unsigned steps = 0;
      for (Rank at = 0; at != to; ++steps) {
        const Rank next = next_control_hop(at, to, world);
        ASSERT_EQ(std::ranges::count(control_neighbours(at, world), next), 1) << at << " to " << to << " of " << world;
        at = next;
        ASSERT_LE(steps, static_cast<unsigned>(std::bit_width(static_cast<unsigned>(world))));
      }
    }
}

// Each rank answers as its entry says, and notes whom it was asked by.
class Asking : public testing::Test {
 protected:
  explicit Asking(Rank world = 9) {
    answers_.resize(static_cast<std::size_t>(world));
    for (Rank rank = 0; rank < world; ++rank) {
      watches_.emplace_back(rank, world, ControlOptions{}, beginning);
      watches_.back().answer_by([this, rank](const Question& question) {
        questions_.push_back(rank);
        EXPECT_EQ(question.sequence, 7U);
        return answers_[static_cast<std::size_t>(rank)];
      });
    }
  }

  void answer(Rank rank, State state, Rank waits_for = -1, const std::string& text = "") {
    answers_[static_cast<std::size_t>(rank)] = {{.state = state, .waits_for = waits_for}, text};
  }

  std::optional<Finding> ask(Rank whom, std::uint32_t subject = 1) {
    ControlWatch::Outcome outcome;
    watches_[0].ask(whom, {.sequence = 7, .subject = subject}, outcome);
    carry(0, outcome);
    while (!wire_.empty()) {
      const auto [from, to, news] = wire_.front();
      wire_.pop_front();
      ControlWatch::Outcome next;
      watches_[static_cast<std::size_t>(to)].heard(from, news, beginning, next);
      carry(to, next);
    }
    return watches_[0].finding();
  }

  std::vector<Rank> questions_;
  bool deaf_ = false;

 private:
  struct Piece {
    Rank from, to;
    News news;
  };
  void carry(Rank from, const ControlWatch::Outcome& outcome) {
    EXPECT_FALSE(outcome.fault);
    for (const News& news : outcome.send)
      if (!deaf_)
        wire_.push_back({from, next_control_hop(from, news.culprit, static_cast<Rank>(watches_.size())), news});
  }

  std::vector<ControlWatch> watches_;
  std::vector<std::pair<Answer, std::string>> answers_;
  std::deque<Piece> wire_;
};

TEST_F(Asking, finds_the_rank_that_has_not_called) {
  answer(5, State::under_way, 3);
  answer(3, State::under_way, 4);
  answer(4, State::not_called, -1, "elsewhere");
  const auto found = ask(5);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 4);
  EXPECT_EQ(found->answer.state, State::not_called);
  EXPECT_EQ(found->text, "elsewhere");
  EXPECT_THAT(questions_, ElementsAre(5, 3, 4));
}

TEST_F(Asking, ends_where_ranks_wait_for_each_other) {
  answer(5, State::under_way, 3);
  answer(3, State::under_way, 5);
  const auto found = ask(5);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->answer.state, State::under_way);
  EXPECT_THAT(questions_, ElementsAre(5, 3));
}

TEST_F(Asking, ends_where_a_rank_waits_for_the_one_that_asks) {
  answer(1, State::under_way, 0);
  EXPECT_EQ(ask(1)->rank, 1);
}

TEST_F(Asking, keeps_what_it_found_until_the_next_answer_about_the_same) {
  answer(5, State::not_called);
  ASSERT_TRUE(ask(5, 1));
  deaf_ = true;
  EXPECT_TRUE(ask(5, 1));
  EXPECT_FALSE(ask(5, 2)) << "of another operation nothing is known yet";
  EXPECT_FALSE(ask(6, 2));
}

TEST_F(Asking, overhears_no_answers_to_others) {
  deaf_ = true;
  ask(5);
  ControlWatch watch(0, 9, {}, beginning);
  ControlWatch::Outcome outcome;
  watch.ask(5, {.sequence = 7}, outcome);
  const auto answered = [&](Rank who, std::uint32_t number) {
    watch.heard(1, {.type = NewsType::answer, .origin = who, .culprit = 0, .answer = {.number = number}}, beginning,
                outcome);
    return watch.finding().has_value();
  };
  EXPECT_FALSE(answered(5, outcome.send.front().question.number + 1));
  EXPECT_FALSE(answered(6, outcome.send.front().question.number));
  EXPECT_TRUE(answered(5, outcome.send.front().question.number));
}

TEST(Questions, of_a_rank_that_has_no_operations_yet_get_no_answer) {
  ControlWatch watch(1, 2, {}, beginning);
  ControlWatch::Outcome outcome;
  watch.heard(0, {.type = NewsType::question, .origin = 0, .culprit = 1}, beginning, outcome);
  EXPECT_THAT(outcome.send, IsEmpty());
}

TEST(Questions, and_answers_arrive_as_they_were_sent) {
  std::vector<std::byte> wire;
  append_frame(wire, {.type = NewsType::question,
                      .origin = 2,
                      .culprit = 1,
                      .question = {.number = 3, .sequence = 4, .subject = 5, .about = Question::About::past}});
  append_frame(wire, {.type = NewsType::answer,
                      .origin = 1,
                      .culprit = 2,
                      .text = std::string(2000, 'x'),
                      .answer = {.number = 3, .state = State::ended, .waits_for = 6, .group = 7}});
  NewsReader reader(4);
  std::vector<News> got;
  for (std::span<const std::byte> left = wire; !left.empty();) {
    const std::size_t taken = std::min(left.size(), reader.space().size());
    std::ranges::copy(left.first(taken), reader.space().begin());
    reader.filled(taken);
    left = left.subspan(taken);
    while (const auto news = reader.next()) got.push_back(*news);
    ASSERT_FALSE(reader.garbage());
  }
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].culprit, 1);
  EXPECT_EQ(got[0].question.number, 3U);
  EXPECT_EQ(got[0].question.sequence, 4U);
  EXPECT_EQ(got[0].question.subject, 5U);
  EXPECT_EQ(got[0].question.about, Question::About::past);
  EXPECT_EQ(got[1].answer.number, 3U);
  EXPECT_EQ(got[1].answer.state, State::ended);
  EXPECT_EQ(got[1].answer.waits_for, 6);
  EXPECT_EQ(got[1].answer.group, 7U);
  EXPECT_EQ(got[1].text, std::string(most_news_text - sizeof(Answer), 'x'));
}

TEST(Explanations, say_what_is_known_and_what_to_do) {
  const RankNames names;
  const auto said = [&](State state, bool is_elsewhere, std::optional<bool> called) {
    return explanation(0, Finding{1, {.state = state, .is_elsewhere = is_elsewhere}, "X"}, called, names);
  };
  EXPECT_EQ(explanation(0, {}, {}, names), "; is that rank slow or stuck? a longer timeout gives it more time");
  EXPECT_EQ(said(State::not_called, true, false),
            "; rank 1 has not called it, and has been in X, which rank 0 has not called; call both in the same order "
            "on every rank");
  EXPECT_THAT(said(State::not_called, true, true), HasSubstr("and has been in X; if neither can end before"));
  EXPECT_THAT(said(State::unknown, true, {}), HasSubstr("; rank 1 has been in X; if neither"));
  EXPECT_EQ(said(State::unknown, false, {}),
            "; rank 1 X; is that rank slow or stuck? a longer timeout gives it more time");
  EXPECT_THAT(said(State::under_way, false, {}), HasSubstr("rank 1 is in it too; is the network slow?"));
  EXPECT_THAT(said(State::ended, false, {}), HasSubstr("rank 1 has ended it; is the network slow?"));
}

// ---- Several communicators of one process.

struct Communicating {
  explicit Communicating(Siblings& all, const std::string& name, RankNames names = {}) : siblings(all) {
    siblings.join(engine(), name, recorder, history, std::move(names));
  }
  ~Communicating() { siblings.leave(engine()); }
  // An engine is no more than a name to them.
  const Engine* engine() const { return reinterpret_cast<const Engine*>(this); }

  Siblings& siblings;
  FlightRecorder recorder;
  std::shared_ptr<CallHistory> history = std::make_shared<CallHistory>(2);
};

TEST(SiblingsTest, tell_what_is_under_way_in_any_of_them) {
  Siblings siblings;
  Communicating a(siblings, "A"), nameless(siblings, "");
  a.recorder.start({.collective = Collective::recv, .peer = 1, .bytes = 40});
  a.recorder.end(a.recorder.start({.sequence = 1, .collective = Collective::barrier}), false);
  a.recorder.start({.sequence = 2, .collective = Collective::all_reduce});
  std::this_thread::sleep_for(std::chrono::seconds(1));  // more than lies between looking at the two recorders
  nameless.recorder.start({.sequence = 5, .collective = Collective::send, .peer = -1});
  nameless.recorder.start({.sequence = 5, .collective = Collective::broadcast});
  const auto texts = [&](std::optional<std::uint32_t> asked) {
    std::vector<std::string> found;
    for (const auto& call : siblings.under_way(a.engine(), asked)) found.push_back(call.text);
    return found;
  };
  EXPECT_THAT(texts({}), ElementsAre("all_reduce #2 of group 'A'", "broadcast #5",
                                     "recv of 40 B from rank 1 of group 'A'", "send of 0 B to any rank"));
  EXPECT_THAT(texts(2), ElementsAre("broadcast #5", testing::_, testing::_));
  EXPECT_EQ(siblings.under_way(a.engine(), {}).front().group, Siblings::number_of("A"));
  EXPECT_EQ(siblings.under_way(a.engine(), 2).front().group, 0U) << "no other rank could know which it is";
  { const Communicating gone(siblings, "gone"); }
  EXPECT_EQ(siblings.has_called(Siblings::number_of("gone"), 0), std::nullopt);
}

TEST(SiblingsTest, know_what_has_been_called) {
  Siblings siblings;
  Communicating a(siblings, "A");
  a.history->add({});
  const auto group = Siblings::number_of("A");
  EXPECT_EQ(siblings.has_called(group, 0), true);
  EXPECT_EQ(siblings.has_called(group, 1), false);
  EXPECT_EQ(siblings.has_called(Siblings::number_of("B"), 0), std::nullopt);
  EXPECT_EQ(siblings.has_called(0, 0), std::nullopt);
}

TEST(SiblingsTest, do_not_tell_of_a_loss_that_all_see) {
  Siblings siblings;
  Communicating a(siblings, "A"), b(siblings, "B");
  siblings.failed(b.engine(), Error(ErrorKind::peer_lost, "rank 2 (1 of its group) died"));
  siblings.failed(a.engine(), Error(ErrorKind::peer_lost, "rank 2 died"));
  EXPECT_EQ(siblings.failed_before(a.engine()), "");
}

// A rank of a small group leaves since one of another group is lost, or aborts everything.
TEST(SiblingsTest, tell_why_a_rank_may_have_left) {
  Siblings siblings;
  Communicating node(siblings, "A", RankNames({4, 5}));
  EXPECT_EQ(siblings.why_it_left(node.engine(), 0), std::nullopt);
  {
    Communicating same(siblings, "B", RankNames({4, 5}));
    siblings.failed(same.engine(), Error(ErrorKind::peer_lost, "rank 4 (0 of its group) left the job", 0));
    EXPECT_EQ(siblings.why_it_left(node.engine(), 0), std::nullopt) << "which is the same";
    Communicating others(siblings, "C", RankNames({2, 5}));
    siblings.failed(others.engine(), Error(ErrorKind::peer_lost, "rank 2 (0 of its group) died", 0));
    EXPECT_EQ(siblings.why_it_left(node.engine(), 0), "rank 2 (0 of its group) died");
  }
  Communicating world(siblings, "");
  EXPECT_FALSE(siblings.is_gone(node.engine(), 0));
  EXPECT_TRUE(siblings.is_gone(world.engine(), 4)) << "nobody else would say why";
  siblings.departed(world.engine(), 0);
  EXPECT_FALSE(siblings.is_gone(node.engine(), 0)) << "that is another one";
  siblings.departed(world.engine(), 4);
  EXPECT_TRUE(siblings.is_gone(node.engine(), 0));
  siblings.failed(world.engine(), Error(ErrorKind::aborted, "rank 4 gave up", 4));
  EXPECT_EQ(siblings.why_it_left(node.engine(), 0), "rank 4 gave up");
}

TEST(SiblingsTest, tell_which_failed_before) {
  Siblings siblings;
  Communicating a(siblings, "A"), b(siblings, "B");
  siblings.failed(b.engine(), Error(ErrorKind::timeout, "first"));
  EXPECT_EQ(siblings.failed_before(a.engine()), "") << "it has not failed itself";
  siblings.failed(a.engine(), Error(ErrorKind::timeout, "second"));
  siblings.failed(b.engine(), Error(ErrorKind::timeout, "third"));
  EXPECT_THAT(siblings.failed_before(a.engine()), HasSubstr("s before, group 'B' failed: first"));
  EXPECT_EQ(siblings.failed_before(b.engine()), "");
  EXPECT_EQ(siblings.after_failure(), "") << "it is not known in what";
  siblings.failed(b.engine(), Error(ErrorKind::timeout, "first"), "barrier #2 of group 'B'");
  EXPECT_THAT(siblings.after_failure(), HasSubstr(" s after barrier #2 of group 'B' failed)"));
}

TEST(SiblingsTest, know_which_ranks_of_the_world_are_lost) {
  Siblings siblings;
  Communicating world(siblings, "");
  EXPECT_FALSE(siblings.loss_of(5));
  {
    Communicating group(siblings, "A", RankNames({3, 5}));
    siblings.failed(group.engine(), Error(ErrorKind::peer_lost, "rank 5 (1 of its group) died", 1));
    EXPECT_EQ(siblings.loss_of(5).value().why, "rank 5 (1 of its group) died");
    EXPECT_FALSE(siblings.loss_of(1)) << "that is its number in the group";
  }
  EXPECT_FALSE(siblings.loss_of(5)) << "with the group its ranks are forgotten";
  siblings.departed(world.engine(), 2);
  EXPECT_EQ(siblings.loss_of(2).value().why, "rank 2 has left the job");
}

TEST(SiblingsTest, do_not_give_up_ranks_that_ended_a_group_only) {
  Siblings siblings;
  Communicating world(siblings, ""), left(siblings, "A", RankNames({3, 5})), aborted(siblings, "B", RankNames({3, 5}));
  siblings.failed(left.engine(), Error(ErrorKind::peer_lost, "rank 5 left while it was needed", 1));
  siblings.departed(left.engine(), 1);
  siblings.failed(aborted.engine(), Error(ErrorKind::aborted, "rank 5 called abort()", 1));
  siblings.failed(world.engine(), Error(ErrorKind::aborted, "rank 5 ended with ValueError", 5));
  EXPECT_FALSE(siblings.loss_of(5));
  siblings.departed(world.engine(), 5);
  EXPECT_EQ(siblings.loss_of(5).value().why, "rank 5 ended with ValueError");
}

}  // namespace
}  // namespace ranvier::engine

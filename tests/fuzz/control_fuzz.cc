// libFuzzer target: what arrives on a control connection. The input is what one neighbour sends, in pieces, each behind
// its length and how much time passes before it. News that make no sense never get past the reader, all others are
// written as they were read, and a watch that is told them reports at most one fault.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "engine/control_news.h"
#include "engine/control_watch.h"

namespace {

using namespace ranvier;
using namespace ranvier::engine;

constexpr Rank world = 6;
constexpr Rank neighbour = 1;

void require(bool held) {
  if (!held) std::abort();
}

// A frame may leave as it came, to neighbours that did not hear it.
void expect_same_again(const News& news) {
  std::vector<std::byte> frame;
  append_frame(frame, news);
  NewsReader reader(world);
  require(frame.size() <= reader.space().size());
  std::ranges::copy(frame, reader.space().begin());
  reader.filled(frame.size());
  const auto again = reader.next();
  require(again && again->type == news.type && again->origin == news.origin && again->kind == news.kind &&
          again->culprit == news.culprit && again->text == news.text && again->call == news.call &&
          std::memcmp(&again->question, &news.question, sizeof news.question) == 0 &&
          std::memcmp(&again->answer, &news.answer, sizeof news.answer) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto now = ControlWatch::Time() + std::chrono::hours(1);
  ControlWatch watch(0, world, {}, now);
  watch.answer_by([](const Question& question) {
    return std::pair(Answer{.sequence = question.sequence}, std::string(question.sequence % 2000, 'x'));
  });
  NewsReader reader(world);
  int faults = 0;
  bool told_of_garbage = false;
  std::span<const std::uint8_t> rest(data, size);
  while (rest.size() > 2) {
    const std::size_t length = std::min<std::size_t>(rest[0], rest.size() - 2);
    now += std::chrono::milliseconds(rest[1]);
    auto piece = rest.subspan(2, length);
    rest = rest.subspan(2 + length);
    ControlWatch::Outcome outcome;
    if (length == 0) watch.waits_in({.sequence = rest.size() % 2 == 0 ? 1U : 2U}, outcome);
    while (!piece.empty() && !reader.garbage()) {
      const Bytes space = reader.space();
      require(!space.empty());
      const std::size_t taken = std::min(space.size(), piece.size());
      std::memcpy(space.data(), piece.data(), taken);
      reader.filled(taken);
      piece = piece.subspan(taken);
      while (const auto news = reader.next()) {
        require(news->origin >= 0 && news->origin < world && news->culprit >= -1 && news->culprit < world &&
                news->text.size() <= most_news_text);
        expect_same_again(*news);
        watch.heard(neighbour, *news, now, outcome);
      }
    }
    if (reader.garbage() && !told_of_garbage) watch.garbled(neighbour, outcome);
    told_of_garbage = reader.garbage();
    watch.tick(now, outcome);
    if (outcome.fault) ++faults;
    if (length == 1) watch.ask(3, {.sequence = 1}, outcome);
    for (const News& news : outcome.pass_on) expect_same_again(news);
    for (News& news : outcome.send) {
      require(news.culprit > 0 && news.culprit < world);
      news.text.resize(std::min(news.text.size(), most_news_text - sizeof(Answer)));  // as it is cut on the wire
      expect_same_again(news);
    }
    require(faults <= 1);
  }
  return 0;
}

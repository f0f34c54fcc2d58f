// libFuzzer target: a call of gRPC between two ends that are honest, on a wire that is not. The input says what the one
// end sends and how much of it the wire takes at a time, how that is delivered, changed, left out, repeated and mixed
// with others, and how much the other end takes or puts aside. Where nobody has touched the wire it is given a
// beginning of what was sent, and all of it in the end; where somebody has, neither end reads or keeps more than it
// may.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "tests/fuzz/bytes_under_way.h"
#include "transport/http2_call.h"

namespace {

using namespace ranvier;
using namespace ranvier::transport;

constexpr std::size_t most_sent = 256 << 10;

void require(bool held) {
  if (!held) std::abort();
}

// Bytes that tell where in the stream they belong.
std::byte text_at(std::size_t place) { return static_cast<std::byte>(place % 251); }

class Line : public fuzz::BytesUnderWay {
 public:
  Line() {
    say(1, most_sent);
    deliver(most_sent);
    hear(1, 1);
    const std::byte word{1};
    const Http2Call::Due due = there_.due(1);
    require(due.content == 1);
    back_.assign(due.words.begin(), due.words.end());
    back_.push_back(word);
    there_.sent(back_.size());
    answer();
  }

  // So much is offered, and the wire takes so much of it, heads included.
  void say(std::size_t bytes, std::size_t most) {
    bytes = std::min(bytes, most_sent - sent_);
    std::vector<std::byte> text(bytes);
    for (std::size_t i = 0; i < bytes; ++i) text[i] = text_at(sent_ + i);
    const Http2Call::Due due = here_.due(bytes);
    require(due.content <= bytes);
    const std::size_t taken = std::min(most, due.words.size() + due.content);
    put(due.words.first(std::min(taken, due.words.size())));
    put(ConstBytes(text).first(taken - std::min(taken, due.words.size())));
    sent_ += here_.sent(taken);
  }
  void end() {
    if (!here_.owes_content()) here_.end();
  }

  void deliver(std::size_t bytes) {
    bytes = std::min(bytes, under_way_.size());
    delivered_.insert(delivered_.end(), under_way_.begin(), under_way_.begin() + static_cast<std::ptrdiff_t>(bytes));
    under_way_.erase(under_way_.begin(), under_way_.begin() + static_cast<std::ptrdiff_t>(bytes));
  }

  // Into memory of `most` bytes, parts of at most `part` at a time.
  void hear(std::size_t most, std::size_t part) {
    std::vector<std::byte> memory(most);
    std::size_t given = there_.take(memory);
    while (given < most && !delivered_.empty() && !there_.broken()) {
      given += receive(Bytes(memory).subspan(given), part);
      given += there_.take(Bytes(memory).subspan(given));
    }
    require(given <= most);
    if (!touched_)
      for (std::size_t i = 0; i < given; ++i) require(memory[i] == text_at(heard_ + i));
    heard_ += given;
    answer();
  }
  void put_aside(std::size_t part) {
    if (there_.broken()) return;
    there_.put_aside();
    if (there_.broken()) return;
    receive({}, part);
    there_.put_aside();
    answer();
  }

  void finish() {
    for (int turns = 0; !touched_ && (heard_ < sent_ || here_.owes_content()); ++turns) {
      require(turns < 1000);
      if (here_.owes_content()) say(most_sent - sent_, most_sent);
      flush();
      deliver(under_way_.size());
      hear(most_sent, most_sent);
    }
    if (touched_) return;
    require(heard_ == sent_ && !here_.broken() && !there_.broken());
    flush();
    deliver(under_way_.size());
    hear(1, most_sent);
    require(there_.ended() == here_.has_ended());
  }

 private:
  void put(ConstBytes bytes) { under_way_.insert(under_way_.end(), bytes.begin(), bytes.end()); }
  void flush() {
    const ConstBytes words = here_.unsent();
    put(words);
    here_.sent(words.size());
  }
  std::size_t receive(Bytes into, std::size_t part) {
    const Http2Call::Room room = there_.room(into);
    require(room.content.empty() || room.content.data() == into.data());
    require(room.content.size() <= into.size() && room.content.size() + room.words.size() > 0);
    const std::size_t bytes =
        std::min({std::max<std::size_t>(part, 1), delivered_.size(), room.content.size() + room.words.size()});
    const std::size_t content = std::min(bytes, room.content.size());
    if (content > 0) std::memcpy(room.content.data(), delivered_.data(), content);
    if (bytes > content) std::memcpy(room.words.data(), delivered_.data() + content, bytes - content);
    delivered_.erase(delivered_.begin(), delivered_.begin() + static_cast<std::ptrdiff_t>(bytes));
    const std::size_t arrived = there_.arrived(bytes);
    require(arrived == content);
    return arrived;
  }
  // What the other end says comes back at once: leave to send more.
  void answer() {
    const ConstBytes words = there_.unsent();
    require(words.size() < (1 << 20));
    back_.insert(back_.end(), words.begin(), words.end());
    there_.sent(words.size());
    while (!back_.empty() && !here_.broken()) {
      here_.put_aside();
      const Http2Call::Room room = here_.room({});
      const std::size_t bytes = std::min(back_.size(), room.words.size());
      std::memcpy(room.words.data(), back_.data(), bytes);
      here_.arrived(bytes);
      back_.erase(back_.begin(), back_.begin() + static_cast<std::ptrdiff_t>(bytes));
    }
    here_.put_aside();
  }

  Http2Call here_{CallRole::caller, false}, there_{CallRole::called, false};
  std::vector<std::byte> delivered_, back_;
  std::size_t sent_ = 0, heard_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Line line;
  std::span<const std::uint8_t> rest(data, size);
  for (int count = 0; count < 100; ++count) {
    const auto deed = fuzz::next_deed(rest);
    if (!deed) break;
    const auto& [what, one, other, number] = *deed;
    switch (what % 8) {
      case 0:
        line.say(number, other == 0 ? most_sent : std::size_t{other} * (1 + what / 8));
        break;
      case 1:
        line.deliver(number * (1 + what / 8));
        break;
      case 2:
        line.hear(number * (1 + what / 64), 1 + std::size_t{other} * other);
        break;
      case 3:
        line.put_aside(number);
        break;
      case 4:
      case 5:
      case 6:
        line.meddle(*deed, rest);
        break;
      default:
        if (one == 0) line.end();
    }
  }
  line.finish();
  return 0;
}

// libFuzzer target: the wire of a TLS session behind its handshake, in the hands of somebody who knows no key. The
// input says what the one end sends, and how its bytes are delivered, changed, left out, repeated and mixed with
// others. What the other end is given is always a beginning of what was sent; all of it, without an error, where nobody
// has touched the wire.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/socket.h"
#include "tests/fuzz/bytes_under_way.h"
#include "transport/tls.h"

namespace {

using namespace ranvier;
using namespace ranvier::transport;

constexpr std::size_t most_sent = 100'000;  // what a pair of sockets holds

void require(bool held) {
  if (!held) std::abort();
}

// Bytes that tell where in the stream they belong.
std::byte text_at(std::size_t place) { return static_cast<std::byte>(place % 251); }

class Line : public fuzz::BytesUnderWay {
 public:
  Line() {
    for (auto* ends : {&near_, &far_}) {
      std::array<int, 2> pair{};
      require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data()) == 0);
      *ends = {Fd(pair[0]), Fd(pair[1])};
    }
    static const auto context =
        std::make_shared<const TlsContext>(SecurityOptions{}, ConstBytes(std::array<std::byte, 16>{}));
    here_ = std::make_unique<TlsSession>(context, near_[0], TlsRole::dialler);
    there_ = std::make_unique<TlsSession>(context, far_[0], TlsRole::guest);
    for (bool done = false; !done;) {
      const TlsProgress one = here_->handshake();
      take();
      deliver(under_way_.size());
      const TlsProgress other = there_->handshake();
      std::array<std::byte, 4096> answer;
      const ssize_t got = ::recv(far_[1].get(), answer.data(), answer.size(), MSG_DONTWAIT);
      if (got > 0) require(::send(near_[1].get(), answer.data(), static_cast<std::size_t>(got), 0) == got);
      require(one != TlsProgress::failed && other != TlsProgress::failed);
      done = one == TlsProgress::done && other == TlsProgress::done;
    }
  }

  void say(std::size_t head, std::size_t body) {
    if (sent_ + head + body > most_sent) return;
    std::vector<std::byte> text(head + body);
    for (std::byte& byte : text) byte = text_at(sent_++);
    const ConstBytes all(text);
    require(here_->send(all.first(head), all.subspan(head)) == std::ssize(all) || all.empty());
    take();
  }
  void change_key_after(std::uint64_t records) { here_->change_key_after(records); }

  void deliver(std::size_t bytes) {
    bytes = std::min(bytes, under_way_.size());
    if (bytes > 0 && ::send(far_[1].get(), under_way_.data(), bytes, MSG_DONTWAIT) != static_cast<ssize_t>(bytes))
      touched_ = true;
    under_way_.erase(under_way_.begin(), under_way_.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  void repeat(std::size_t bytes) {
    const std::vector<std::byte> again(
        under_way_.begin(), under_way_.begin() + static_cast<std::ptrdiff_t>(std::min(bytes, under_way_.size())));
    under_way_.insert(under_way_.begin(), again.begin(), again.end());
    touched_ |= !again.empty();
  }

  void hear(std::size_t most) {
    std::vector<std::byte> text(most);
    const ssize_t got = there_->recv(text);
    for (ssize_t i = 0; i < got; ++i) require(text[static_cast<std::size_t>(i)] == text_at(heard_++));
    require(heard_ <= sent_);
    if (most > 0 && got <= 0) require(touched_ || (got < 0 && errno == EAGAIN));
  }
  void finish() {
    deliver(under_way_.size());
    for (std::size_t before = heard_ + 1; before != heard_;) {
      before = heard_;
      hear(10'000);
    }
    require(touched_ || heard_ == sent_);
  }

 private:
  // What the one end has sent, off its socket.
  void take() {
    std::array<std::byte, 64 << 10> some;
    for (ssize_t got = 0; here_->flush(), (got = ::recv(near_[1].get(), some.data(), some.size(), MSG_DONTWAIT)) > 0;)
      under_way_.insert(under_way_.end(), some.begin(), some.begin() + got);
  }

  std::array<Fd, 2> near_, far_;
  std::unique_ptr<TlsSession> here_, there_;
  std::size_t sent_ = 0, heard_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Line line;
  std::span<const std::uint8_t> rest(data, size);
  for (int count = 0; count < 200; ++count) {
    const auto deed = fuzz::next_deed(rest);
    if (!deed) break;
    const auto& [what, one, other, number] = *deed;
    switch (what % 8) {
      case 0:
        line.say(one % 65, static_cast<std::size_t>(other) * other);
        break;
      case 1:
        line.deliver(number);
        break;
      case 2:
        line.hear(number);
        break;
      case 3:
        line.change_key_after(one + 1U);
        break;
      case 4:
      case 5:
      case 6:
        line.meddle(*deed, rest);
        break;
      default:
        line.repeat(number);
    }
  }
  line.finish();
  return 0;
}

// What a byte costs the processor inside TLS: `tls_benchmark [rounds]`
//
// Claim: no more beyond a plain connection than 1.2 times what AES-128-GCM itself takes to encrypt and to decrypt it.
// One thread holds both ends of a loopback connection and moves slices from one place of memory to another, as the
// engine does, so that nobody waits and nobody polls: all of the difference is work. AES alone is OpenSSL's, on pieces
// as large as a record that stay in the first cache, without nonces and tags. Plain, TLS and AES take short turns, and
// each round has its own ratio: others on the machine slow all three.
#include <fmt/format.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/socket.h"
#include "ranvier/types.h"
#include "transport/channel.h"
#include "transport/tcp_door.h"

namespace {

using namespace ranvier;
using namespace ranvier::transport;

constexpr std::size_t slice = 512 << 10;  // of the engine, over tcp
constexpr std::size_t all = 16 << 20;     // does not stay in a cache of one's own
constexpr std::size_t piece = 16 << 10;   // a record
constexpr std::size_t turn = 64 << 20;    // bytes

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

struct Pair {
  explicit Pair(bool encrypted) {
    const Fd listener = listen_on("127.0.0.1", {}, tcp_buffers);
    near = Channel(start_connect(local_address(listener), tcp_buffers));
    pollfd ready{near.socket().get(), POLLOUT, 0};
    poll(&ready, 1, 1000);
    far = Channel(accept_next(listener));
    for (const Channel* channel : {&near, &far}) tune_connection(channel->socket());
    if (!encrypted) return;
    const std::array<std::byte, 16> token{};
    const auto context = std::make_shared<TlsContext>(SecurityOptions{}, token);
    near.begin_tls(context, TlsRole::dialler);
    far.begin_tls(context, TlsRole::guest);
    for (bool done = false; !done;) {
      const TlsProgress one = near.secure(), other = far.secure();
      if (one == TlsProgress::failed || other == TlsProgress::failed) std::abort();
      done = one == TlsProgress::done && other == TlsProgress::done;
    }
  }

  void move(ConstBytes from, Bytes to) {
    while (!to.empty()) {
      if (!from.empty() && near.flush()) {
        const ssize_t taken = near.send({}, from.first(std::min(from.size(), slice)));
        if (taken > 0) from = from.subspan(static_cast<std::size_t>(taken));
      }
      const ssize_t got = far.recv(to.first(std::min(to.size(), slice)));
      if (got > 0) to = to.subspan(static_cast<std::size_t>(got));
    }
  }

  Channel near, far;
};

class Aes {
 public:
  Aes() {
    const std::array<unsigned char, 16> key{};
    EVP_EncryptInit_ex(sealing_.get(), EVP_aes_128_gcm(), nullptr, key.data(), key.data());
    EVP_DecryptInit_ex(opening_.get(), EVP_aes_128_gcm(), nullptr, key.data(), key.data());
  }
  void work() {
    int size = 0;
    EVP_EncryptUpdate(sealing_.get(), sealed_.data(), &size, clear_.data(), piece);
    EVP_DecryptUpdate(opening_.get(), clear_.data(), &size, sealed_.data(), piece);
  }

 private:
  using Context = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;
  Context sealing_{EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free}, opening_{EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free};
  std::vector<unsigned char> clear_ = std::vector<unsigned char>(piece), sealed_ = clear_;
};

// Middle, and the quarters around it.
std::string spread(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
  };
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", at(0.5), at(0.25), at(0.75));
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 25;
  const std::vector<std::byte> from(all, std::byte{1});
  std::vector<std::byte> to(all);
  Pair plain(false), encrypted(true);
  Aes aes;
  const auto seconds_per_gb = [](auto&& work) {
    const double start = processor_seconds();
    work();
    return (processor_seconds() - start) * 1e9 / turn;
  };
  const auto moved = [&](Pair& pair) {
    return seconds_per_gb([&] {
      for (std::size_t done = 0; done < turn; done += all) pair.move(from, to);
    });
  };
  std::vector<double> without, with, alone, more, ratio;
  for (int round = -2; round < rounds; ++round) {
    const double first = moved(plain), inside = moved(encrypted), second = moved(plain);
    const double cipher = seconds_per_gb([&] {
      for (std::size_t done = 0; done < turn; done += piece) aes.work();
    });
    if (round < 0) continue;  // caches and windows grow
    without.push_back((first + second) / 2);
    with.push_back(inside);
    alone.push_back(cipher);
    more.push_back(inside - without.back());
    ratio.push_back(more.back() / cipher);
  }
  fmt::print("CPU s/GB, medians and quarters of {} rounds\n", rounds);
  fmt::print("plain      {}\nTLS        {}\nmore       {}\nAES alone  {}\nmore / AES {}\n", spread(without),
             spread(with), spread(more), spread(alone), spread(ratio));
}

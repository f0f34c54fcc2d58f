// Who is let in where connections are encrypted, and what becomes of bytes that somebody touched on their way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "ranvier/error.h"
#include "ranvier/guest_service.h"
#include "support/certificates.h"
#include "support/refusal.h"
#include "support/temporary_folder.h"
#include "transport/tcp_stream.h"
#include "transport/tcp_world.h"
#include "transport/tls.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using namespace support;
using namespace transport;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

fs::path write_private(const fs::path& file, const std::string& text) {
  std::ofstream(file) << text;
  chmod(file.c_str(), S_IRUSR | S_IWUSR);
  return file;
}

std::string config_refusal(const std::function<void()>& call) { return refusal(call, ErrorKind::config); }

// Two ends of a connection inside this process, each with its session.
struct Pair {
  Pair(const SecurityOptions& dialler_options, const SecurityOptions& guest_options, ConstBytes dialler_token,
       ConstBytes guest_token, std::string_view protocol = {}) {
    std::array<int, 2> ends{};
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data());
    sockets = {Fd(ends[0]), Fd(ends[1])};
    dialler = std::make_unique<TlsSession>(std::make_shared<TlsContext>(dialler_options, dialler_token, protocol),
                                           sockets[0], TlsRole::dialler);
    guest = std::make_unique<TlsSession>(std::make_shared<TlsContext>(guest_options, guest_token, protocol), sockets[1],
                                         TlsRole::guest);
  }
  explicit Pair(const SecurityOptions& options = {}) : Pair(options, options, token, token) {}

  // Whether both ends come to an end of it with success.
  bool shake_hands() {
    TlsProgress one = TlsProgress::pending, other = TlsProgress::pending;
    for (int i = 0; i < 10; ++i) {
      if (one == TlsProgress::pending) one = dialler->handshake();
      if (other == TlsProgress::pending) other = guest->handshake();
    }
    return one == TlsProgress::done && other == TlsProgress::done;
  }

  static constexpr std::array<std::byte, 16> token{std::byte{1}, std::byte{2}};
  std::array<Fd, 2> sockets;
  std::unique_ptr<TlsSession> dialler, guest;
};

TEST(Tls, TwoWhoKnowTheJobTalkAndNobodyElseDoes) {
  EXPECT_TRUE(Pair().shake_hands());
  std::array<std::byte, 16> other = Pair::token;
  other[7] = std::byte{9};
  Pair strangers({}, {}, Pair::token, other);
  EXPECT_FALSE(strangers.shake_hands());
  EXPECT_THAT(strangers.guest->problem(), HasSubstr("TLS failed"));
}

TEST(Tls, AKeyFileKeepsOutWhoKnowsTheTokenOnly) {
  const TemporaryFolder folder;
  const SecurityOptions first{.key_file = write_private(folder.path() / "a", job_key_text(new_job_key()))};
  const SecurityOptions second{.key_file = write_private(folder.path() / "b", job_key_text(new_job_key()))};
  EXPECT_TRUE(Pair(first).shake_hands());
  EXPECT_FALSE(Pair(first, second, Pair::token, Pair::token).shake_hands());
  EXPECT_FALSE(Pair(first, {}, Pair::token, Pair::token).shake_hands());
  EXPECT_FALSE(Pair({}, first, Pair::token, Pair::token).shake_hands());
}

TEST(Tls, AChangedByteIsNeverTakenForData) {
  for (std::size_t position = 0; position < 40; ++position) {
    Pair honest, pair;
    ASSERT_TRUE(honest.shake_hands() && pair.shake_hands());
    // What the dialler sends is caught, changed and given to its guest by a second connection between the two.
    std::array<int, 2> wire{};
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, wire.data());
    const Fd reading(wire[0]), writing(wire[1]);
    const int guest_end = pair.sockets[1].get();
    const Fd kept(dup(guest_end));
    dup2(reading.get(), guest_end);
    const std::array<std::byte, 18> message{};
    ASSERT_EQ(pair.dialler->send({}, message), ssize_t{18});
    std::array<std::byte, 256> caught;
    const ssize_t size = recv(kept.get(), caught.data(), caught.size(), 0);
    ASSERT_EQ(size, 18 + 5 + 1 + 16);  // a header, a type, a tag
    caught[position] ^= std::byte{4};
    ASSERT_EQ(send(writing.get(), caught.data(), static_cast<std::size_t>(size), 0), size);
    std::array<std::byte, 64> got;
    const ssize_t result = pair.guest->recv(got);
    EXPECT_LT(result, 0) << position;
    // A length that grew waits for more bytes; they would not help.
    EXPECT_TRUE(errno == EBADMSG || (errno == EAGAIN && (position == 3 || position == 4))) << position << " " << errno;
  }
}

TEST(Tls, ARecordIsNotTakenTwice) {
  Pair pair;
  ASSERT_TRUE(pair.shake_hands());
  const std::array<std::byte, 10> message{};
  ASSERT_EQ(pair.dialler->send({}, message), ssize_t{10});
  std::array<std::byte, 256> seen;
  const ssize_t size = recv(pair.sockets[1].get(), seen.data(), seen.size(), MSG_PEEK);
  std::array<std::byte, 64> got;
  EXPECT_EQ(pair.guest->recv(got), ssize_t{10});
  ASSERT_EQ(send(pair.sockets[0].get(), seen.data(), static_cast<std::size_t>(size), 0), size);
  EXPECT_LT(pair.guest->recv(got), 0);
  EXPECT_EQ(errno, EBADMSG);
}

// What a stream says that has got `record`, if any, and then what is no record. It is asked for more until it says so.
std::string said_of_garbage_behind(std::string_view record) {
  const Fd listener = listen_on("127.0.0.1", {}, {});
  Channel near(start_connect(local_address(listener), {}));
  pollfd ready{near.socket().get(), POLLOUT, 0};
  EXPECT_EQ(poll(&ready, 1, 5000), 1);
  std::vector<Channel> channels;
  Channel& far = channels.emplace_back(accept_next(listener));
  const auto context = std::make_shared<const TlsContext>(SecurityOptions{}, Pair::token);
  near.begin_tls(context, TlsRole::dialler);
  far.begin_tls(context, TlsRole::guest);
  TlsProgress one = TlsProgress::pending, other = TlsProgress::pending;
  for (const auto end = std::chrono::steady_clock::now() + 5s;
       (one == TlsProgress::pending || other == TlsProgress::pending) && std::chrono::steady_clock::now() < end;) {
    one = near.secure();
    other = far.secure();
  }
  EXPECT_EQ(other, TlsProgress::done);
  if (!record.empty()) {
    EXPECT_EQ(near.send(std::as_bytes(std::span(record)), {}), std::ssize(record));
  }
  const std::string garbage = "GET / HTTP/1.1";
  EXPECT_EQ(send(near.socket().get(), garbage.data(), garbage.size(), 0), std::ssize(garbage));
  ready = {far.socket().get(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 5000), 1);
  ReceiveBuffers buffers(1);
  TcpStream stream("tcp", 3, 4, 0, std::move(channels), buffers);
  return refusal(
      [&] {
        for (int i = 0; i < 1000; ++i) stream.try_recv({});
      },
      ErrorKind::peer_lost);
}

TEST(Tls, AStreamSaysWhatEndedIt) {
  EXPECT_THAT(said_of_garbage_behind(""), AllOf(HasSubstr("rank 4"), HasSubstr("something arrived that is no record")));
}

// A record may end in the middle of an element, whose rest is waited for: over grpc most do.
TEST(Tls, AStreamSaysWhatEndedItBehindAPartOfAnElement) {
  EXPECT_THAT(said_of_garbage_behind("abc"),
              AllOf(HasSubstr("rank 4"), HasSubstr("something arrived that is no record")));
}

// As by a peer that has left with something unread: what it had sent is a whole message, perhaps.
TEST(TcpStream, KeepsWhatCameBeforeAReset) {
  const Fd listener = listen_on("127.0.0.1", {}, {});
  Fd near = start_connect(local_address(listener), {});
  pollfd ready{near.get(), POLLOUT, 0};
  ASSERT_EQ(poll(&ready, 1, 5000), 1);
  std::vector<Channel> channels;
  Channel& far = channels.emplace_back(accept_next(listener));
  ready = {far.socket().get(), POLLIN, 0};
  ReceiveBuffers buffers(1);
  ASSERT_EQ(send(near.get(), "message", 7, 0), 7);
  ASSERT_EQ(poll(&ready, 1, 5000), 1);
  TcpStream stream("tcp", 3, 4, 0, std::move(channels), buffers);
  EXPECT_EQ(stream.try_recv({}).size(), 7U);
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(setsockopt(near.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  near = Fd();
  ASSERT_EQ(poll(&ready, 1, 5000), 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stream.try_recv({}).size(), 7U);
  stream.release(7);
  EXPECT_THAT(refusal([&] { stream.try_recv({}); }, ErrorKind::peer_lost), HasSubstr("reset"));
}

TEST(Tls, AStrangerWhoTalksOnIsNotListenedTo) {
  Pair pair;
  // A hello that announces more than it may, and never ends.
  const std::string start = {'\x16', '\x03', '\x01', '\x40', '\x00', '\x01', '\x00', '\x7f', '\xf0'};
  send(pair.sockets[0].get(), start.data(), start.size(), 0);
  TlsProgress progress = pair.guest->handshake();
  const std::string more(1000, 'x');
  for (int i = 0; i < 10 && progress == TlsProgress::pending; ++i) {
    send(pair.sockets[0].get(), more.data(), more.size(), 0);
    progress = pair.guest->handshake();
  }
  EXPECT_EQ(progress, TlsProgress::failed);
}

// A plain hello with the right token is what a program of an open job would say.
TEST(Tls, AWorldThatEncryptsAndOneThatDoesNotDoNotMeet) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  endpoints.push_back(tcp_endpoint({.rank = 0, .world = 2}, {.security = {.encrypt_everywhere = true}}));
  endpoints.push_back(tcp_endpoint({.rank = 1, .world = 2}, {.security = {.insecure = true}}));
  const auto addresses = addresses_of(endpoints);
  on_threads(2, [&](Rank rank) {
    EXPECT_THROW(
        endpoints[static_cast<std::size_t>(rank)]->connect(addresses, std::chrono::steady_clock::now() + 300ms), Error);
  });
}

TEST(Tls, MutualCertificatesOfOneAuthorityDo) {
  Certificates made("ours");
  made.add_authority("theirs");
  made.add("one", "ours");
  made.add("two", "ours");
  made.add("three", "theirs");
  made.add("old", "ours", -1);
  EXPECT_TRUE(Pair(made.options("one"), made.options("two"), Pair::token, Pair::token).shake_hands());
  EXPECT_FALSE(Pair(made.options("one"), made.options("three"), Pair::token, Pair::token).shake_hands());
  EXPECT_FALSE(Pair(made.options("three"), made.options("one"), Pair::token, Pair::token).shake_hands());
  Pair expired(made.options("one"), made.options("old"), Pair::token, Pair::token);
  EXPECT_FALSE(expired.shake_hands());
  EXPECT_THAT(expired.dialler->problem(), HasSubstr("(certificate has expired by this host's clock)"));
  EXPECT_THAT(config_refusal([&] { Pair(made.options("missing")); }),
              AllOf(HasSubstr("missing.pem"), HasSubstr("cannot be used")));
}

// Else it would say that nobody came, and ask for the firewall.
TEST(Tls, WhoRefusesACertificateSaysWhy) {
  Certificates made;
  made.add("one", "ours");
  made.add("old", "ours", -1);
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (Rank rank = 0; rank < 2; ++rank) {
    auto security = made.options(rank == 0 ? "one" : "old");
    security.encrypt_everywhere = true;
    endpoints.push_back(tcp_endpoint({.rank = rank, .world = 2}, {.security = security}));
  }
  const auto addresses = addresses_of(endpoints);
  on_threads(2, [&](Rank rank) {
    const std::string said = refusal(
        [&] { endpoints[static_cast<std::size_t>(rank)]->connect(addresses, std::chrono::steady_clock::now() + 1s); },
        ErrorKind::unreachable);
    if (rank == 0) {
      EXPECT_THAT(said, HasSubstr("somebody came and was refused: TLS failed: "));
      EXPECT_THAT(said, HasSubstr("certificate has expired"));
    }
  });
}

TEST(Tls, InHttp2CertificatesNameTheHostOfTheJob) {
  Certificates made;
  made.add("one", "ours");
  made.add("two", "ours");
  made.add("other", "ours", 2, "none", "elsewhere");
  const auto meets = [&](const char* dialler, const char* guest, std::string_view protocol) {
    return Pair(made.options(dialler), made.options(guest), Pair::token, Pair::token, protocol).shake_hands();
  };
  EXPECT_TRUE(meets("one", "two", "h2"));
  EXPECT_FALSE(meets("one", "other", "h2"));
  EXPECT_FALSE(meets("other", "one", "h2"));
  EXPECT_TRUE(meets("one", "other", {}));
}

// Bytes that a side takes from its socket when this much of a hello that never ends is there at once.
std::size_t taken_of_a_long_hello(Pair&& pair) {
  // Records as long as they may be, of a message as long as they may be.
  std::string flood;
  while (flood.size() < 60'000) {
    flood += {'\x16', '\x03', '\x01', '\x40', '\x00'};
    flood += flood.size() == 5 ? std::string{'\x01', '\x01', '\xf0', '\x00'} : std::string(4, 'x');
    flood += std::string((1 << 14) - 4, 'x');
  }
  const ssize_t sent = send(pair.sockets[0].get(), flood.data(), flood.size(), MSG_DONTWAIT);
  EXPECT_EQ(sent, static_cast<ssize_t>(flood.size()));
  EXPECT_EQ(pair.guest->handshake(), TlsProgress::failed);
  EXPECT_EQ(pair.guest->problem(), "it sent too much before it proved who it is");
  int left = 0;
  ioctl(pair.sockets[1].get(), FIONREAD, &left);
  return flood.size() - static_cast<std::size_t>(left);
}

TEST(Tls, OfAStranger4KiBAreRead) {
  EXPECT_EQ(taken_of_a_long_hello(Pair()), 4096);
  Certificates made;
  made.add("one", "ours");
  EXPECT_EQ(taken_of_a_long_hello(Pair(made.options("one"))), 4096);
}

TEST(Tls, WhoHasLongCertificatesReadsAsMuchOfAStranger) {
  Certificates made;
  made.add("short", "ours");
  made.add("long", "ours", 2, std::string(6000, 'x'));
  EXPECT_TRUE(Pair(made.options("long")).shake_hands());
  Pair unequal(made.options("long"), made.options("short"), Pair::token, Pair::token);
  EXPECT_FALSE(unequal.shake_hands());
  const std::size_t taken = taken_of_a_long_hello(Pair(made.options("long")));
  EXPECT_GT(taken, 9000);
  EXPECT_LT(taken, 16 << 10);
}

// OpenSSL sends it behind the leaf, though the leaf's file has not got it.
TEST(Tls, ALongCertificateOfTheAuthorityCountsAsWell) {
  Certificates made("ours", std::string(6000, 'x'));
  made.add("one", "ours");
  EXPECT_TRUE(Pair(made.options("one")).shake_hands());
}

TEST(JobKey, ComesBackFromItsFileAndOtherFilesAreRefused) {
  const TemporaryFolder folder;
  const JobKey key = new_job_key();
  EXPECT_NE(key, new_job_key());
  const fs::path file = write_private(folder.path() / "job.key", job_key_text(key) + "\n");
  EXPECT_EQ(read_job_key(file), key);
  chmod(file.c_str(), 0644);
  EXPECT_THAT(config_refusal([&] { read_job_key(file); }), HasSubstr("chmod 600"));
  EXPECT_THAT(config_refusal([&] { read_job_key(folder.path() / "none"); }), HasSubstr("ranvier key new"));
  EXPECT_THAT(config_refusal([&] { read_job_key(folder.path()); }), HasSubstr("is no file"));
  EXPECT_EQ(read_job_key(write_private(folder.path() / "windows", job_key_text(key) + "\r\n")), key);
  const fs::path endless = write_private(folder.path() / "endless", job_key_text(key));
  fs::resize_file(endless, std::uintmax_t{1} << 40);  // of which nothing is read
  EXPECT_THAT(config_refusal([&] { read_job_key(endless); }), HasSubstr("holds no key"));
  const fs::path two = write_private(folder.path() / "two", job_key_text(key) + "\n" + job_key_text(key) + "\n");
  EXPECT_THAT(config_refusal([&] { read_job_key(two); }), HasSubstr("more than one key"));
  for (const std::string& text :
       {std::string(), std::string("hello"), job_key_text(key) + "00", job_key_text(key).substr(0, 40),
        std::string("ranvier-job-key-1 ") + std::string(64, 'g')})
    EXPECT_THROW(read_job_key(write_private(folder.path() / "bad", text)), Error) << text;
}

// In arguments and variables others may read it, and errors go to every rank's log.
TEST(JobKey, InPlaceOfItsFileIsRefusedAndNotShown) {
  const std::string text = job_key_text(new_job_key()), digits = text.substr(text.rfind(' ') + 1);
  for (const std::string& given : {text, digits, "./" + text, text + '\n'}) {
    const std::string said = config_refusal([&] { check_security({.key_file = given}); });
    EXPECT_THAT(said, HasSubstr("is a key: others of this host may have read it there; make a new one"));
    EXPECT_EQ(said.find(digits), said.npos);
    EXPECT_EQ(config_refusal([&] { fingerprint({.key_file = given}); }), said);
  }
  const std::string pem = "-----BEGIN PRIVATE KEY-----\nMIIEvsecret\n-----END PRIVATE KEY-----\n";
  for (const std::string& given : {pem, std::string("MIIEvsecret\nMIIEvsecret")})
    for (const SecurityOptions& options :
         {SecurityOptions{.key_file = given}, {.certificate = given, .private_key = given, .authority = given}}) {
      const std::string said = config_refusal([&] { check_security(options); });
      EXPECT_THAT(said, HasSubstr("is the text of one and no path"));
      EXPECT_EQ(said.find("MIIEv"), said.npos);
    }
}

TEST(Security, ContradictionsAreRefused) {
  EXPECT_THAT(config_refusal([] { check_security({.key_file = "a", .insecure = true}); }), HasSubstr("contradicts"));
  EXPECT_THAT(config_refusal([] { check_security({.key_file = "a", .certificate = "b"}); }),
              HasSubstr("name one of them"));
  EXPECT_THAT(config_refusal([] { check_security({.certificate = "b"}); }), HasSubstr("three files"));
  check_security({});
}

TEST(Security, FilesThatDoNotFitTogetherAreRefused) {
  const TemporaryFolder folder;
  Certificates made("ours");
  made.add_authority("theirs");
  made.add("one", "ours");
  made.add("two", "ours");
  made.add("three", "theirs");
  const SecurityOptions good = made.options("one");
  check_security(good);
  const auto refused = [](const SecurityOptions& options) { return config_refusal([&] { check_security(options); }); };
  SecurityOptions bad = good;
  bad.private_key = made.options("two").private_key;
  EXPECT_THAT(refused(bad), AllOf(HasSubstr("two.key"), HasSubstr("one.pem' was made with another one")));
  bad.private_key = write_private(folder.path() / "garbage", "hello\n");
  EXPECT_THAT(refused(bad), HasSubstr("garbage' cannot be used: it is no private key in PEM"));
  bad.private_key = folder.path() / "missing.key";
  EXPECT_THAT(refused(bad), AllOf(HasSubstr("missing.key"), HasSubstr("No such file")));
  bad.private_key = folder.path() / "locked.key";
  const std::string lock = fmt::format("openssl pkey -in {} -aes256 -passout pass:word -out {} 2>/dev/null",
                                       good.private_key.string(), bad.private_key.string());
  EXPECT_EQ(std::system(lock.c_str()), 0);
  EXPECT_THAT(refused(bad), HasSubstr("locked.key' cannot be used: it takes a password"));
  bad = good;
  bad.authority = folder.path() / "garbage";
  EXPECT_THAT(refused(bad),
              AllOf(HasSubstr("the authority '"), HasSubstr("garbage' cannot be used: it is not in PEM")));
  EXPECT_THAT(refused(made.options("three")), AllOf(HasSubstr("three.pem"), HasSubstr("does not vouch for it")));
}

// Else a peer would say so, and to nobody but the rank that called it.
TEST(Security, CertificatesThatPeersWouldRefuseAreRefusedByTheirOwnRank) {
  Certificates made("weak");
  const auto refused = [&](const std::string& name) {
    return config_refusal([&] { check_security(made.options(name)); });
  };
  made.add_authority("weak", "none", "-newkey rsa:1024 -nodes");
  made.add("one", "weak");
  EXPECT_THAT(refused("one"), AllOf(HasSubstr("one.pem"), HasSubstr("nothing so weak")));
  made.add_authority("weak");
  made.add_with("extendedKeyUsage=serverAuth,clientAuth", "both", "weak");
  check_security(made.options("both"));
  for (const char* usage : {"serverAuth", "clientAuth", "emailProtection"}) {
    made.add_with(fmt::format("extendedKeyUsage={}", usage), "two", "weak");
    EXPECT_THAT(refused("two"), AllOf(HasSubstr("two.pem"), HasSubstr("serverAuth and clientAuth"))) << usage;
  }
}

// The programs say so before they start workers; whoever uses the library is told here.
TEST(Security, GuestsHaveToProveWhoTheyAre) {
  EXPECT_THAT(refusal([] { guest_service({}, {}); }), HasSubstr("say --insecure"));
}

}  // namespace
}  // namespace ranvier

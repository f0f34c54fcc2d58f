// Records of TLS 1.3: those of an RFC's example, those of OpenSSL, and no others.
#include "transport/tls_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/secret.h"
#include "base/socket.h"
#include "support/certificates.h"
#include "transport/tls.h"

namespace ranvier::transport {
namespace {

using testing::HasSubstr;
using Text = std::vector<std::byte>;

Secret secret_of(unsigned seed) {
  std::mt19937 random(seed);
  Secret secret;
  std::ranges::generate(secret, [&] { return static_cast<std::byte>(random()); });
  return secret;
}

Text random_text(std::size_t size) {
  std::mt19937 random(static_cast<unsigned>(size));
  Text text(size);
  std::ranges::generate(text, [&] { return static_cast<std::byte>(random()); });
  return text;
}

Text record_of(TlsWriter& writer, ConstBytes head, ConstBytes body, TlsContent type = TlsContent::data) {
  Text record(head.size() + body.size() + tls_overhead);
  EXPECT_EQ(writer.write(type, head, body, record.data()), record.size());
  return record;
}

std::optional<Text> content_of(TlsReader& reader, ConstBytes record) {
  Text text(record.size() - tls_overhead);
  const auto content = reader.read(record, text.data());
  if (!content || content->type != TlsContent::data) return std::nullopt;
  text.resize(content->bytes);
  return text;
}

// Section 3: what the client says when the handshake is over.
TEST(TlsRecords, AreThoseOfRfc8448) {
  Secret secret;
  ASSERT_TRUE(parse_hex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5", secret));
  Text text(50);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::byte>(i);
  TlsWriter writer(secret);
  EXPECT_EQ(hex(record_of(writer, ConstBytes(text).first(7), ConstBytes(text).subspan(7))),
            "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f"
            "5a6292a2977014bd1e3deae63aeebb21694915e4");
}

TEST(TlsRecords, ComeBackInTheirOrder) {
  TlsWriter writer(secret_of(1));
  TlsReader reader(secret_of(1));
  for (const std::size_t head : {0, 1, 16, 24, 64})
    for (const std::size_t size : {0, 1, 15, 16, 17, 2047, 2048, 2049, 16'000, (16 << 10) - 64}) {
      const Text text = random_text(head + size);
      const Text record = record_of(writer, ConstBytes(text).first(head), ConstBytes(text).subspan(head));
      EXPECT_EQ(tls_record_size(record), record.size());
      EXPECT_EQ(content_of(reader, record), text);
      if (size % 2 == 0) continue;
      writer.next();
      reader.next();
    }
}

TEST(TlsRecords, AnyChangeIsRefused) {
  const Text text = random_text(100);
  const auto honest = [&] {
    TlsWriter writer(secret_of(1));
    return record_of(writer, {}, text);
  }();
  for (std::size_t bit = 0; bit < 8 * honest.size(); ++bit) {
    Text changed = honest;
    changed[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    TlsReader reader(secret_of(1));
    EXPECT_EQ(content_of(reader, changed), std::nullopt) << bit;
  }
  TlsReader reader(secret_of(1)), stranger(secret_of(2));
  EXPECT_EQ(content_of(stranger, honest), std::nullopt);
  EXPECT_EQ(content_of(reader, honest), text);
  EXPECT_EQ(content_of(reader, honest), std::nullopt) << "repeated";
}

TEST(TlsRecords, TheirSizeIsKnownFromTheirHeader) {
  const auto size = [](std::initializer_list<int> header) {
    Text bytes;
    for (const int byte : header) bytes.push_back(static_cast<std::byte>(byte));
    return tls_record_size(bytes);
  };
  EXPECT_EQ(size({}), 0U);
  EXPECT_EQ(size({23, 3, 3, 0}), 0U);
  EXPECT_EQ(size({23, 3, 3, 0, 17}), tls_overhead);
  EXPECT_EQ(size({23, 3, 3, 0, 16}), std::nullopt);
  EXPECT_EQ(size({23, 3, 3, 0x40, 17}), most_tls_record);
  EXPECT_EQ(size({23, 3, 3, 0x40, 18}), std::nullopt);
  EXPECT_EQ(size({21, 3, 3, 0, 17}), std::nullopt) << "not encrypted";
}

// The wire between two sessions, whose records somebody can take and put.
struct Wire {
  Wire() {
    for (auto* ends : {&near, &far}) {
      std::array<int, 2> pair{};
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data());
      *ends = {Fd(pair[0]), Fd(pair[1])};
    }
    const std::array<std::byte, 16> token{};
    const auto context = std::make_shared<TlsContext>(SecurityOptions{}, token);
    dialler = std::make_unique<TlsSession>(context, near[0], TlsRole::dialler);
    guest = std::make_unique<TlsSession>(context, far[0], TlsRole::guest);
    TlsProgress one{}, other{};
    for (int i = 0; i < 5; ++i) {
      one = dialler->handshake();
      put(take(near[1]), far[1]);
      other = guest->handshake();
      put(take(far[1]), near[1]);
    }
    EXPECT_EQ(one, TlsProgress::done);
    EXPECT_EQ(other, TlsProgress::done);
  }

  static Text take(const Fd& end, std::size_t most = 1 << 20) {
    Text bytes(most);
    const ssize_t got = ::recv(end.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return bytes;
  }
  static void put(ConstBytes bytes, const Fd& end) {
    if (bytes.empty()) return;
    EXPECT_EQ(::send(end.get(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
  }

  // The records that the dialler makes of `text`, which nobody has been given.
  std::vector<Text> sent(ConstBytes text) {
    EXPECT_EQ(dialler->send({}, text), std::ssize(text));
    std::vector<Text> records;
    Text bytes = take(near[1]);
    for (ConstBytes rest = bytes; !rest.empty();) {
      const std::size_t size = tls_record_size(rest).value();
      records.emplace_back(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(size));
      rest = rest.subspan(size);
    }
    return records;
  }
  void deliver(ConstBytes bytes) { put(bytes, far[1]); }
  // All that the guest receives, up to `most` at a time; and how it ended.
  Text received(std::size_t most = 64 << 10) {
    Text text, piece(most);
    while ((result = guest->recv(piece)) > 0) text.insert(text.end(), piece.begin(), piece.begin() + result);
    problem = result < 0 ? errno : 0;
    return text;
  }
  void expect_refused() {
    EXPECT_EQ(received(), Text());
    EXPECT_EQ(result, -1);
    EXPECT_EQ(problem, EBADMSG);
    EXPECT_THAT(guest->problem(), HasSubstr("forged, changed, repeated or left out"));
    EXPECT_EQ(received(), Text()) << "it stays so";
    EXPECT_EQ(problem, EBADMSG);
    EXPECT_EQ(guest->send({}, Text(1)), -1);
    // And the other end hears why.
    put(take(far[1]), near[1]);
    Text text(10);
    EXPECT_EQ(dialler->recv(text), -1);
    EXPECT_EQ(errno, EBADMSG);
    EXPECT_EQ(dialler->problem(), "TLS failed: the other end says bad record mac (alert 20)");
  }

  std::array<Fd, 2> near, far;
  std::unique_ptr<TlsSession> dialler, guest;
  ssize_t result = 0;
  int problem = 0;
};

TEST(TlsSession, TakesRecordsInPieces) {
  for (const std::size_t piece : {1, 4, 5, 21, 1000, 16'405, 16'406, 16'407, 100'000}) {
    Wire wire;
    const Text text = random_text(piece < 100 ? 3000 : 130'000);
    Text bytes, got;
    for (const Text& record : wire.sent(text)) bytes.insert(bytes.end(), record.begin(), record.end());
    for (ConstBytes rest = bytes; !rest.empty();) {
      const ConstBytes now = rest.first(std::min(rest.size(), piece));
      wire.deliver(now);
      rest = rest.subspan(now.size());
      const Text more = wire.received(piece == 1000 ? 777 : 64 << 10);
      got.insert(got.end(), more.begin(), more.end());
      EXPECT_EQ(wire.problem, EAGAIN);
    }
    EXPECT_EQ(got, text) << piece;
  }
}

// Behind a part of it in the caller's memory, too.
TEST(TlsSession, GivesARecordInPieces) {
  for (const std::size_t most : {1, 100, 1023, 1024, 16'383, 16'384, 16'385, 40'000}) {
    Wire wire;
    const Text text = random_text(most < 100 ? 5000 : 200'000);
    for (const Text& record : wire.sent(text)) wire.deliver(record);
    EXPECT_EQ(wire.received(most), text) << most;
    EXPECT_EQ(wire.problem, EAGAIN);
  }
}

TEST(TlsSession, RefusesARecordThatIsRepeated) {
  Wire wire;
  const Text text = random_text(100);
  const auto records = wire.sent(text);
  ASSERT_EQ(records.size(), 1U);
  wire.deliver(records[0]);
  EXPECT_EQ(wire.received(), text);
  wire.deliver(records[0]);
  wire.expect_refused();
}

TEST(TlsSession, RefusesRecordsInAnotherOrder) {
  Wire wire;
  const auto records = wire.sent(random_text(40'000));
  ASSERT_EQ(records.size(), 3U);
  wire.deliver(records[1]);
  wire.deliver(records[0]);
  wire.expect_refused();
}

TEST(TlsSession, RefusesARecordThatIsShorter) {
  Wire wire;
  const auto records = wire.sent(random_text(5000));
  Text shorter = records[0];
  shorter[3] = std::byte{0};
  wire.deliver(shorter);
  wire.expect_refused();
}

TEST(TlsSession, RefusesARecordOfTheOtherDirection) {
  Wire wire;
  ASSERT_EQ(wire.guest->send({}, random_text(50)), 50);
  const Text record = Wire::take(wire.far[1]);
  Wire::put(record, wire.near[1]);
  Text text(50);
  EXPECT_EQ(wire.dialler->recv(text), 50);
  wire.deliver(record);
  wire.expect_refused();
}

TEST(TlsSession, GivesWhatCameBeforeARecordThatWasChanged) {
  Wire wire;
  const Text text = random_text(40'000);
  auto records = wire.sent(text);
  records[1][300] ^= std::byte{1};
  for (const Text& record : records) wire.deliver(record);
  EXPECT_EQ(wire.received(), Text(text.begin(), text.begin() + (16 << 10)));
  EXPECT_EQ(wire.problem, EBADMSG);
}

// A connection that is cut off ends as one that is closed, and what is left of a record is nothing.
TEST(TlsSession, ARecordThatEndsInItsMiddleIsNeverGiven) {
  Wire wire;
  const Text text = random_text(20'000);
  const auto records = wire.sent(text);
  wire.deliver(records[0]);
  wire.deliver(ConstBytes(records[1]).first(records[1].size() - 1));
  shutdown(wire.far[1].get(), SHUT_WR);
  EXPECT_EQ(wire.received(), Text(text.begin(), text.begin() + (16 << 10)));
  EXPECT_EQ(wire.result, 0);
}

TEST(TlsSession, RefusesWhatIsNoRecord) {
  Wire wire;
  wire.deliver(std::as_bytes(std::span(std::string_view("GET / HTTP/1.1\r\n\r\n"))));
  EXPECT_EQ(wire.received(), Text());
  EXPECT_EQ(wire.problem, EBADMSG);
  EXPECT_THAT(wire.guest->problem(), HasSubstr("no record"));
}

TEST(TlsSession, ChangesItsKeyAfterSoManyRecords) {
  Wire wire;
  wire.dialler->change_key_after(3);
  const Text text = random_text(2000);
  std::size_t updates = 0;
  for (int i = 0; i < 100; ++i) {
    for (const Text& record : wire.sent(text)) {
      updates += record.size() == 5 + tls_overhead;  // KeyUpdate has 5 bytes
      wire.deliver(record);
    }
    EXPECT_EQ(wire.received(), text);
  }
  EXPECT_EQ(updates, 33U);
}

TEST(TlsSession, ManySmallRecordsWithKeysOfTheirOwnFindRoom) {
  Wire wire;
  wire.dialler->change_key_after(1);
  const Text text = random_text(1 << 20);
  Text got;
  for (std::size_t sent = 0, round = 0; got.size() < text.size() && round < 10'000; ++round) {
    const ConstBytes rest = ConstBytes(text).subspan(sent);
    const std::size_t head = std::min<std::size_t>(rest.size(), 7);
    const ssize_t taken = wire.dialler->send(rest.first(head), rest.subspan(head));
    if (taken > 0) sent += static_cast<std::size_t>(taken);
    wire.deliver(Wire::take(wire.near[1], 50'000));
    const Text more = wire.received();
    got.insert(got.end(), more.begin(), more.end());
  }
  EXPECT_EQ(got, text);
}

// ---- OpenSSL's own records at the other end.

struct OpenSsl {
  OpenSsl(const SecurityOptions& options, const SecurityOptions& own, TlsRole role)
      : context(SSL_CTX_new(TLS_method()), SSL_CTX_free), ssl(nullptr, SSL_free) {
    std::array<int, 2> pair{};
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data());
    ends = {Fd(pair[0]), Fd(pair[1])};
    const std::array<std::byte, 16> token{};
    session = std::make_unique<TlsSession>(std::make_shared<TlsContext>(own, token), ends[0], role);
    SSL_CTX_use_certificate_chain_file(context.get(), options.certificate.c_str());
    SSL_CTX_use_PrivateKey_file(context.get(), options.private_key.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_load_verify_file(context.get(), options.authority.c_str());
    SSL_CTX_set_num_tickets(context.get(), 0);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    ssl.reset(SSL_new(context.get()));
    SSL_set_fd(ssl.get(), ends[1].get());
    role == TlsRole::dialler ? SSL_set_accept_state(ssl.get()) : SSL_set_connect_state(ssl.get());
    for (int i = 0; i < 5; ++i) {
      progress = session->handshake();
      done = SSL_do_handshake(ssl.get()) == 1;
    }
  }

  // Both ways, each as the other end takes it.
  void exchange(const Text& text) {
    Text there, here;
    std::size_t sent = 0, written = 0;
    for (int i = 0; i < 10'000 && (here.size() < text.size() || there.size() < text.size()); ++i) {
      Text piece(50'000);
      if (sent < text.size())
        if (const ssize_t taken = session->send({}, ConstBytes(text).subspan(sent)); taken > 0)
          sent += static_cast<std::size_t>(taken);
      session->flush();
      for (int got = 0; (got = SSL_read(ssl.get(), piece.data(), 50'000)) > 0;)
        there.insert(there.end(), piece.begin(), piece.begin() + got);
      if (written < text.size())
        if (const int taken = SSL_write(ssl.get(), text.data() + written,
                                        static_cast<int>(std::min(text.size() - written, piece.size())));
            taken > 0)
          written += static_cast<std::size_t>(taken);
      for (ssize_t got = 0; (got = session->recv(piece)) > 0;)
        here.insert(here.end(), piece.begin(), piece.begin() + got);
    }
    EXPECT_EQ(there, text);
    EXPECT_EQ(here, text);
  }

  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl;
  std::array<Fd, 2> ends;
  std::unique_ptr<TlsSession> session;
  TlsProgress progress = TlsProgress::pending;
  bool done = false;
};

class TlsSessionWithOpenSsl : public testing::TestWithParam<TlsRole> {
 protected:
  TlsSessionWithOpenSsl() {
    made.add("one", "ours");
    made.add("two", "ours");
  }
  support::Certificates made;
};

TEST_P(TlsSessionWithOpenSsl, TheyUnderstandEachOther) {
  OpenSsl pair(made.options("one"), made.options("two"), GetParam());
  ASSERT_TRUE(pair.done && pair.progress == TlsProgress::done);
  pair.exchange(random_text(10));
  pair.exchange(random_text(1'000'000));
  pair.session->change_key_after(2);
  pair.exchange(random_text(200'000));
  // It changes its own key and asks for another one, which is there for what this side says next.
  ASSERT_EQ(SSL_key_update(pair.ssl.get(), SSL_KEY_UPDATE_REQUESTED), 1);
  pair.exchange(random_text(200'000));
  ASSERT_EQ(SSL_key_update(pair.ssl.get(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
  pair.exchange(random_text(100));
  SSL_shutdown(pair.ssl.get());
  Text text(10);
  EXPECT_EQ(pair.session->recv(text), 0);
}

TEST_P(TlsSessionWithOpenSsl, OneWhoIsRefusedHearsWhy) {
  made.add_authority("theirs");
  made.add("three", "theirs");
  OpenSsl pair(made.options("one"), made.options("three"), GetParam());
  EXPECT_FALSE(pair.done);
  Text text(10);
  EXPECT_EQ(pair.session->recv(text), -1);
  EXPECT_THAT(pair.session->problem(),
              HasSubstr(GetParam() == TlsRole::dialler ? "unknown CA (alert 48)" : "unknown ca"));
}

INSTANTIATE_TEST_SUITE_P(Roles, TlsSessionWithOpenSsl, testing::Values(TlsRole::dialler, TlsRole::guest),
                         [](const auto& role) { return role.param == TlsRole::dialler ? "Dialler" : "Guest"; });

}  // namespace
}  // namespace ranvier::transport

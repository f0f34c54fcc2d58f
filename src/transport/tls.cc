#include "transport/tls.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/secret.h"
#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

// A shorter record is opened where it has arrived and copied, so that what is not data never lies in a caller's memory.
constexpr std::size_t least_direct = 1 << 10;
constexpr std::size_t beside_data = 64;  // room for a change of keys and an alert
// Of a stranger. A hello with a key has some 300 bytes, and one that offers keys for tomorrow's computers 2000. Chains
// of certificates may be longer: then as much is read as a peer needs whose chain is as long as this rank's own.
constexpr std::size_t most_unproved = 4 << 10;
constexpr std::size_t beside_certificates = 3 << 10;
constexpr std::size_t most_with_certificates = 16 << 10;

constexpr auto new_session_ticket = std::byte{4}, key_update = std::byte{24};  // RFC 8446, 4
constexpr std::size_t handshake_header = 4;
constexpr auto fatal = std::byte{2};  // RFC 8446, 6

constexpr std::array<unsigned char, 7> identity{'r', 'a', 'n', 'v', 'i', 'e', 'r'};

std::string last_problem() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "no reason was given" : reason;
}

// Of a certificate that was looked at and not taken: " (certificate has expired …)".
std::string why_untrusted(SSL* session) {
  const long why = SSL_get_verify_result(session);
  if (why == X509_V_OK) return "";
  const bool is_by_time = why == X509_V_ERR_CERT_HAS_EXPIRED || why == X509_V_ERR_CERT_NOT_YET_VALID;
  return fmt::format(" ({}{})", X509_verify_cert_error_string(why), is_by_time ? " by this host's clock" : "");
}

// The key of the job's TLS sessions: RFC 5869's extract step, with the token, which differs from job to job, as salt.
std::vector<unsigned char> derived_key(ConstBytes secret, ConstBytes token) {
  std::vector<unsigned char> key(32);
  std::vector<unsigned char> input(secret.size());
  input.reserve(secret.size() + 32);  // no copy of the secret is left behind
  std::memcpy(input.data(), secret.data(), secret.size());
  for (const char letter : std::string_view("ranvier tls 1.3 psk")) input.push_back(static_cast<unsigned char>(letter));
  unsigned length = 0;
  if (HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()), input.data(), input.size(), key.data(),
           &length) == nullptr)
    throw Error(ErrorKind::config, fmt::format("OpenSSL cannot derive a key: {}", last_problem()));
  OPENSSL_cleanse(input.data(), input.size());
  return key;
}

const std::vector<unsigned char>& key_of(SSL* ssl) {
  return *static_cast<const std::vector<unsigned char>*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

// A session that both sides could have resumed: how an external key enters TLS 1.3.
SSL_SESSION* session_of_key(SSL* ssl) {
  constexpr std::array<unsigned char, 2> aes_128_gcm_sha256{0x13, 0x01};
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256.data());
  SSL_SESSION* const session = SSL_SESSION_new();
  const std::vector<unsigned char>& key = key_of(ssl);
  if (session != nullptr && cipher != nullptr && SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set1_id_context(session, identity.data(), identity.size()) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** name, std::size_t* name_size, SSL_SESSION** session) {
  *session = session_of_key(ssl);
  *name = identity.data();
  *name_size = identity.size();
  return *session == nullptr ? 0 : 1;
}

int find_key(SSL* ssl, const unsigned char* name, std::size_t name_size, SSL_SESSION** session) {
  *session = nullptr;
  if (!std::equal(name, name + name_size, identity.begin(), identity.end())) return 1;
  *session = session_of_key(ssl);
  return *session == nullptr ? 0 : 1;
}

// Who offers none, or others, is found out by what it says.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
                    unsigned offered_size, void* known) {
  const auto& own = *static_cast<const std::vector<unsigned char>*>(known);
  unsigned char* selected = nullptr;
  if (SSL_select_next_proto(&selected, size, own.data(), static_cast<unsigned>(own.size()), offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *chosen = selected;
  return SSL_TLSEXT_ERR_OK;
}

// Bytes of the certificates that this side shows, those among them that the authority's file has.
std::size_t chain_bytes(SSL_CTX* context) {
  const auto bytes_of = [](X509* certificate) {
    return static_cast<std::size_t>(std::max(i2d_X509(certificate, nullptr), 0));
  };
  STACK_OF(X509)* others = nullptr;
  SSL_CTX_get0_chain_certs(context, &others);
  std::size_t total = bytes_of(SSL_CTX_get0_certificate(context));
  for (int i = 0; i < sk_X509_num(others); ++i) total += bytes_of(sk_X509_value(others, i));
  return total;
}

void demand(bool done, std::string_view what, const std::filesystem::path& file) {
  if (!done)
    throw Error(ErrorKind::config, fmt::format("{} '{}' cannot be used: {}", what, file.string(), last_problem()));
}

// Whether a handshake's record offers sessions to resume (RFC 8446, 4.6.1) and nothing else. Ranks offer none; a server
// of gRPC that carries their calls may.
bool are_tickets(ConstBytes content) {
  while (content.size() >= handshake_header && content[0] == new_session_ticket) {
    const std::size_t bytes = std::to_integer<std::size_t>(content[1]) << 16 |
                              std::to_integer<std::size_t>(content[2]) << 8 | std::to_integer<std::size_t>(content[3]);
    if (content.size() - handshake_header < bytes) return false;
    content = content.subspan(handshake_header + bytes);
  }
  return content.empty();
}

}  // namespace

TlsBuffers::Buffer TlsBuffers::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique_for_overwrite<std::byte[]>(bytes);
  Buffer last = std::move(idle_.back());
  idle_.pop_back();
  return last;
}

void TlsBuffers::give(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(buffer));
}

Bytes TlsSession::Held::room(TlsBuffers& buffers) {
  if (!memory) memory = buffers.take();
  return {memory.get() + end, TlsBuffers::bytes - end};
}

void TlsSession::Held::let_go(TlsBuffers& buffers) {
  begin = end = 0;
  if (memory) buffers.give(std::move(memory));
}

// What OpenSSL writes goes behind what the kernel has not taken; what it reads comes from the socket.
struct TlsSession::Handshake {
  static Wire& wire(BIO* bio) { return *static_cast<Wire*>(BIO_get_data(bio)); }

  static int write(BIO* bio, const char* data, std::size_t size, std::size_t* taken) {
    const Bytes room = wire(bio).sealed.room(wire(bio).buffers);
    if (size > room.size()) return 0;  // no certificate is so long
    std::memcpy(room.data(), data, size);
    wire(bio).sealed.end += size;
    *taken = size;
    return 1;
  }

  static int read(BIO* bio, char* data, std::size_t size, std::size_t* given) {
    BIO_clear_retry_flags(bio);
    *given = 0;
    if (wire(bio).may_receive == 0) {
      wire(bio).wants_too_much = true;
      BIO_set_retry_read(bio);
      return 0;
    }
    size = std::min(size, wire(bio).may_receive);
    const ssize_t got = ::recv(wire(bio).socket.get(), data, size, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    wire(bio).ended = got == 0;
    *given = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    wire(bio).may_receive -= *given;
    return got > 0 ? 1 : 0;
  }

  static long control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return wire(bio).ended ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static const BIO_METHOD* method() {
    static const BIO_METHOD* const made = [] {
      BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "ranvier");
      BIO_meth_set_write_ex(method, write);
      BIO_meth_set_read_ex(method, read);
      BIO_meth_set_ctrl(method, control);
      return method;
    }();
    return made;
  }

  // A line of a key log is the one way in which OpenSSL tells them: "CLIENT_TRAFFIC_SECRET_0 <random> <secret>". It
  // goes nowhere else.
  static void note_secret(const SSL* ssl, const char* line) {
    Secrets& secrets = *static_cast<Secrets*>(SSL_get_app_data(ssl));
    const std::string_view words(line);
    std::optional<Secret>* const place = words.starts_with("CLIENT_TRAFFIC_SECRET_0 ")   ? &secrets.dialler
                                         : words.starts_with("SERVER_TRAFFIC_SECRET_0 ") ? &secrets.guest
                                                                                         : nullptr;
    if (place == nullptr) return;
    if (!parse_hex(words.substr(words.rfind(' ') + 1), place->emplace())) place->reset();
  }
};

TlsContext::TlsContext(const SecurityOptions& options, ConstBytes token, std::string_view protocol)
    : context_(SSL_CTX_new(TLS_method()), SSL_CTX_free) {
  if (!context_) throw Error(ErrorKind::config, fmt::format("OpenSSL cannot begin: {}", last_problem()));
  SSL_CTX* const context = context_.get();
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  // An end without a farewell is what a lost peer looks like; the control plane tells a departure from a death.
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_keylog_callback(context, TlsSession::Handshake::note_secret);
  SSL_CTX_set_session_id_context(context, identity.data(),
                                 identity.size());  // else no key does where peers are verified
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);

  if (!protocol.empty()) {
    protocols_.assign(1, static_cast<unsigned char>(protocol.size()));
    protocols_.insert(protocols_.end(), protocol.begin(), protocol.end());
    SSL_CTX_set_alpn_protos(context, protocols_.data(), static_cast<unsigned>(protocols_.size()));
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, &protocols_);
    X509_VERIFY_PARAM_set1_host(SSL_CTX_get0_param(context), name_in_certificates, 0);
  }
  if (!options.certificate.empty()) {
    demand(SSL_CTX_use_certificate_chain_file(context, options.certificate.c_str()) == 1, "the certificate",
           options.certificate);
    demand(SSL_CTX_use_PrivateKey_file(context, options.private_key.c_str(), SSL_FILETYPE_PEM) == 1 &&
               SSL_CTX_check_private_key(context) == 1,
           "the private key", options.private_key);
    demand(SSL_CTX_load_verify_file(context, options.authority.c_str()) == 1, "the authority", options.authority);
    // As it would at every handshake, where the file has the leaf alone: what is sent is to be known.
    SSL_CTX_build_cert_chain(
        context, SSL_BUILD_CHAIN_FLAG_UNTRUSTED | SSL_BUILD_CHAIN_FLAG_IGNORE_ERROR | SSL_BUILD_CHAIN_FLAG_CLEAR_ERROR);
    most_unproved_bytes_ =
        std::clamp(chain_bytes(context) + beside_certificates, most_unproved, most_with_certificates);
  } else {
    most_unproved_bytes_ = most_unproved;
    const bool named = !options.key_file.empty();
    JobKey secret = named ? read_job_key(options.key_file) : JobKey{};  // zeros: the token is the secret then
    shared_key_ = derived_key(secret, token);
    OPENSSL_cleanse(secret.data(), secret.size());
    SSL_CTX_set_app_data(context, &shared_key_);
    SSL_CTX_set_psk_use_session_callback(context, offer_key);
    SSL_CTX_set_psk_find_session_callback(context, find_key);
  }
}

TlsContext::~TlsContext() { OPENSSL_cleanse(shared_key_.data(), shared_key_.size()); }

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, const Fd& socket, TlsRole role)
    : context_(std::move(context)),
      role_(role),
      wire_{.socket = socket, .buffers = context_->buffers_, .may_receive = context_->most_unproved_bytes_},
      ssl_(SSL_new(context_->context_.get())) {
  BIO* const bio = BIO_new(Handshake::method());
  if (ssl_ == nullptr || bio == nullptr)
    throw Error(ErrorKind::config, fmt::format("OpenSSL cannot make a session: {}", last_problem()));
  BIO_set_data(bio, &wire_);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, &secrets_);
  if (role == TlsRole::dialler)
    SSL_set_connect_state(ssl_);
  else
    SSL_set_accept_state(ssl_);
  // SSL_set_tlsext_host_name, which is a macro with a cast in it.
  if (role == TlsRole::dialler && !context_->protocols_.empty())
    SSL_ctrl(ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(name_in_certificates));
}

TlsSession::~TlsSession() {
  forget_handshake();
  wire_.sealed.let_go(wire_.buffers);
  arrived_.let_go(wire_.buffers);
}

TlsProgress TlsSession::handshake() {
  if (broken_ != 0) return TlsProgress::failed;
  if (writer_) return TlsProgress::done;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  const int error = SSL_get_error(ssl_, result);
  // An alert, to somebody whose first words are no hello of this job: that is told nothing.
  if (error == SSL_ERROR_SSL && role_ == TlsRole::guest && !has_answered_) wire_.sealed.let_go(wire_.buffers);
  has_answered_ = has_answered_ || wire_.sealed.size() > 0;
  flush();
  if (result == 1) {
    // Without a certificate there is no other way to an end than the key; still, nothing is taken for granted.
    if (!context_->shared_key_.empty() && SSL_session_reused(ssl_) != 1)
      return fail_handshake("it did not prove that it knows the job's key");
    if (!begin_records()) return fail_handshake("OpenSSL ended its handshake in a way that ranvier does not know");
    return TlsProgress::done;
  }
  if (error == SSL_ERROR_WANT_READ) {
    if (!wire_.wants_too_much) return TlsProgress::pending;
    return fail_handshake("it sent too much before it proved who it is");
  }
  if (error == SSL_ERROR_SSL)
    return fail_handshake(fmt::format("TLS failed: {}{}{}", last_problem(), why_untrusted(ssl_),
                                      context_->shared_key_.empty() ? "" : ", as with one that has another key"));
  // Who has said nothing may be a rank that knocks, or somebody who looks for open ports.
  if (role_ == TlsRole::guest && !has_answered_) return fail_handshake({});
  return fail_handshake("it ended the connection while TLS began, as one that has another key does");
}

void TlsSession::forget_handshake() {
  SSL_free(std::exchange(ssl_, nullptr));
  OPENSSL_cleanse(&secrets_, sizeof secrets_);
  secrets_ = {};
}

TlsProgress TlsSession::fail_handshake(std::string problem) {
  problem_ = std::move(problem);
  broken_ = EPROTO;
  ended_ = EPROTO;
  return TlsProgress::failed;
}

// From here on OpenSSL neither reads nor writes: it has read nothing ahead, and sends no tickets.
bool TlsSession::begin_records() {
  if (!secrets_.dialler || !secrets_.guest || SSL_has_pending(ssl_) == 1) return false;
  const bool dials = role_ == TlsRole::dialler;
  writer_.emplace(dials ? *secrets_.dialler : *secrets_.guest);
  reader_.emplace(dials ? *secrets_.guest : *secrets_.dialler);
  for (auto* secret : {&secrets_.dialler, &secrets_.guest}) OPENSSL_cleanse((*secret)->data(), (*secret)->size());
  return true;
}

void TlsSession::export_secret(std::string_view label, Bytes into) const {
  if (ssl_ == nullptr || SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(into.data()), into.size(),
                                                    label.data(), label.size(), nullptr, 0, 0) != 1)
    throw Error(ErrorKind::internal,
                fmt::format("OpenSSL cannot export a secret: {}; please report this", last_problem()));
}

bool TlsSession::flush() {
  Held& sealed = wire_.sealed;
  while (sealed.size() > 0) {
    const Bytes rest = sealed.bytes();
    const ssize_t taken = ::send(wire_.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)) return false;
    if (taken < 0) broken_ = errno;
    sealed.begin += taken < 0 ? rest.size() : static_cast<std::size_t>(taken);
  }
  sealed.let_go(wire_.buffers);
  return true;
}

// Several records are sealed before the kernel is asked to take them: few system calls, and they still lie in the
// core's cache then.
ssize_t TlsSession::send(ConstBytes head, ConstBytes body) {
  if (!flush()) {
    errno = EAGAIN;
    return -1;
  }
  const std::size_t offered = head.size() + body.size();
  for (bool room = true; room && broken_ == 0 && head.size() + body.size() > 0; room = flush()) {
    while (head.size() + body.size() > 0 && wire_.sealed.room(wire_.buffers).size() >= most_tls_record + beside_data) {
      const ConstBytes now_head = head.first(std::min(head.size(), most_tls_content));
      const ConstBytes now_body = body.first(std::min(body.size(), most_tls_content - now_head.size()));
      write(TlsContent::data, now_head, now_body);
      head = head.subspan(now_head.size());
      body = body.subspan(now_body.size());
    }
  }
  if (broken_ == 0) return static_cast<ssize_t>(offered - head.size() - body.size());
  errno = broken_;
  return -1;
}

void TlsSession::write(TlsContent type, ConstBytes head, ConstBytes body) {
  if (type == TlsContent::data && (new_key_is_due_ || writer_->number() >= records_a_key_)) {
    constexpr std::array update{key_update, std::byte{0}, std::byte{0}, std::byte{1}, std::byte{0}};
    write(TlsContent::handshake, {}, update);
    writer_->next();
    forget_handshake();
    new_key_is_due_ = false;
  }
  wire_.sealed.end += writer_->write(type, head, body, wire_.sealed.room(wire_.buffers).data());
}

ssize_t TlsSession::recv(Bytes into) {
  std::size_t total = 0;
  for (bool more = true; total < into.size();) {
    if (!opened_.empty()) {
      const std::size_t now = std::min(opened_.size(), into.size() - total);
      std::memcpy(into.data() + total, opened_.data(), now);
      opened_ = opened_.subspan(now);
      total += now;
      continue;
    }
    if (ended_) break;
    const auto record = tls_record_size(arrived_.bytes());
    if (!record)
      refuse(SSL_AD_RECORD_OVERFLOW, "something arrived that is no record");
    else if (*record > 0 && *record <= arrived_.size())
      total += open(*record, into.subspan(total));
    else if (more)
      more = pull();
    else
      break;
  }
  if (arrived_.size() == 0 && opened_.empty()) arrived_.let_go(wire_.buffers);
  if (total > 0 || into.empty() || ended_ == 0) return static_cast<ssize_t>(total);
  errno = ended_.value_or(EAGAIN);
  return -1;
}

// Takes what has arrived behind the beginning of a record; whether there may be more of it.
bool TlsSession::pull() {
  if (arrived_.room(wire_.buffers).size() < most_tls_record || arrived_.size() == 0) {
    std::memmove(arrived_.memory.get(), arrived_.bytes().data(), arrived_.size());
    arrived_.end -= std::exchange(arrived_.begin, 0);
  }
  const Bytes room = arrived_.room(wire_.buffers);
  const ssize_t got = ::recv(wire_.socket.get(), room.data(), room.size(), MSG_DONTWAIT);
  if (got > 0) {
    arrived_.end += static_cast<std::size_t>(got);
    return static_cast<std::size_t>(got) == room.size();
  }
  if (got == 0 || (errno != EAGAIN && errno != EINTR)) ended_ = got == 0 ? 0 : errno;
  return false;
}

// Opens the first record that has arrived. How much of `into` is filled; else its content waits in opened_.
std::size_t TlsSession::open(std::size_t record, Bytes into) {
  const Bytes whole = arrived_.bytes().first(record);
  const std::size_t most = record - tls_overhead;
  const bool direct = most <= into.size() && most >= least_direct;
  std::byte* const place = direct ? into.data() : whole.data() + tls_header;
  const auto content = reader_->read(whole, place);
  arrived_.begin += record;
  if (!content) {
    refuse(SSL_AD_BAD_RECORD_MAC, "a record was forged, changed, repeated or left out");
    return 0;
  }
  if (content->type != TlsContent::data) {
    hear(content->type, {place, content->bytes});
    return 0;
  }
  if (direct) return content->bytes;
  opened_ = {place, content->bytes};
  return 0;
}

// What is not data. The other end closes without a farewell (see the context), but one that refuses this end's proof
// says so when its handshake is over here.
void TlsSession::hear(TlsContent type, ConstBytes content) {
  constexpr std::array update{key_update, std::byte{0}, std::byte{0}, std::byte{1}};
  if (type == TlsContent::alert && content.size() == 2) {
    const int alert = std::to_integer<int>(content[1]);
    ended_ = alert == SSL_AD_CLOSE_NOTIFY ? 0 : EBADMSG;
    if (alert != SSL_AD_CLOSE_NOTIFY) {
      problem_ = fmt::format("TLS failed: the other end says {} (alert {})", SSL_alert_desc_string_long(alert), alert);
      if (broken_ == 0) broken_ = EBADMSG;
    }
  } else if (type == TlsContent::handshake && content.size() == 5 && std::ranges::equal(content.first(4), update) &&
             content[4] <= std::byte{1}) {
    reader_->next();
    forget_handshake();
    new_key_is_due_ |= content[4] == std::byte{1};
  } else if (type == TlsContent::handshake && role_ == TlsRole::dialler && !content.empty() && are_tickets(content)) {
    return;
  } else {
    refuse(SSL_AD_UNEXPECTED_MESSAGE, "the other end sent what no rank sends");
  }
}

// Ends the session, and tells the other end why.
void TlsSession::refuse(int alert, std::string problem) {
  ended_ = EBADMSG;
  if (problem_.empty()) problem_ = std::move(problem);
  if (broken_ != 0) return;
  const std::array text{fatal, static_cast<std::byte>(alert)};
  write(TlsContent::alert, {}, text);
  flush();
  broken_ = EBADMSG;
}

}  // namespace ranvier::transport

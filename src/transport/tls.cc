#include "transport/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

constexpr std::size_t record = SSL3_RT_MAX_PLAIN_LENGTH;  // 16 KiB
// Encrypted before the kernel is asked to take it: few system calls, and it still lies in the core's cache then.
constexpr std::size_t batch = 8 * record;
constexpr std::size_t read_ahead = 64 << 10;
// Of a stranger. A hello with a key has some 300 bytes, and one that offers keys for tomorrow's computers 2000. Chains
// of certificates may be longer: then as much is read as a peer needs whose chain is as long as this rank's own.
constexpr std::size_t most_unproved = 4 << 10;
constexpr std::size_t beside_certificates = 3 << 10;
constexpr std::size_t most_with_certificates = 16 << 10;

constexpr std::array<unsigned char, 7> identity{'r', 'a', 'n', 'v', 'i', 'e', 'r'};

std::string last_problem() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "no reason was given" : reason;
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

}  // namespace

// What OpenSSL writes goes to memory that always has room; what it reads comes from the socket.
struct TlsSession::Records {
  static Wire& wire(BIO* bio) { return *static_cast<Wire*>(BIO_get_data(bio)); }

  static int write(BIO* bio, const char* data, std::size_t size, std::size_t* taken) {
    const auto* const begin = reinterpret_cast<const std::byte*>(data);
    wire(bio).unsent.insert(wire(bio).unsent.end(), begin, begin + size);
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
    if (wire(bio).may_receive != Wire::unlimited) wire(bio).may_receive -= *given;
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
};

TlsContext::TlsContext(const SecurityOptions& options, ConstBytes token, std::string_view protocol)
    : context_(SSL_CTX_new(TLS_method()), SSL_CTX_free) {
  if (!context_) throw Error(ErrorKind::config, fmt::format("OpenSSL cannot begin: {}", last_problem()));
  SSL_CTX* const context = context_.get();
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_mode(context,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  // An end without a farewell is what a lost peer looks like; the control plane tells a departure from a death.
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_default_read_buffer_len(context, read_ahead);  // as much as handshake() lets it read, from its end on
  SSL_CTX_set_session_id_context(context, identity.data(),
                                 identity.size());  // else no key does where peers are verified
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);

  if (!protocol.empty()) {
    protocols_.assign(1, static_cast<unsigned char>(protocol.size()));
    protocols_.insert(protocols_.end(), protocol.begin(), protocol.end());
    SSL_CTX_set_alpn_protos(context, protocols_.data(), static_cast<unsigned>(protocols_.size()));
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, &protocols_);
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
      wire_{.socket = socket, .may_receive = context_->most_unproved_bytes_},
      ssl_(SSL_new(context_->context_.get())) {
  BIO* const records = BIO_new(Records::method());
  if (ssl_ == nullptr || records == nullptr)
    throw Error(ErrorKind::config, fmt::format("OpenSSL cannot make a session: {}", last_problem()));
  BIO_set_data(records, &wire_);
  BIO_set_init(records, 1);
  SSL_set_bio(ssl_, records, records);
  if (role == TlsRole::dialler)
    SSL_set_connect_state(ssl_);
  else
    SSL_set_accept_state(ssl_);
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

TlsProgress TlsSession::handshake() {
  if (broken_ != 0) return TlsProgress::failed;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  const int error = SSL_get_error(ssl_, result);
  flush();
  if (result == 1) {
    // Without a certificate there is no other way to an end than the key; still, nothing is taken for granted.
    if (context_->shared_key_.empty() || SSL_session_reused(ssl_) == 1) {
      wire_.may_receive = Wire::unlimited;
      SSL_set_read_ahead(ssl_, 1);
      return TlsProgress::done;
    }
    problem_ = "it did not prove that it knows the job's key";
  } else if (error == SSL_ERROR_WANT_READ) {
    if (!wire_.wants_too_much) return TlsProgress::pending;
    problem_ = "it sent too much before it proved who it is";
  } else if (error == SSL_ERROR_SSL) {
    problem_ = fmt::format("TLS failed: {}{}", last_problem(),
                           context_->shared_key_.empty() ? "" : ", as with one that has another key");
  } else {
    problem_ = "it ended the connection while TLS began, as one that has another key does";
  }
  broken_ = EPROTO;
  return TlsProgress::failed;
}

void TlsSession::export_secret(std::string_view label, Bytes into) const {
  if (SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(into.data()), into.size(), label.data(),
                                 label.size(), nullptr, 0, 0) != 1)
    throw Error(ErrorKind::internal,
                fmt::format("OpenSSL cannot export a secret: {}; please report this", last_problem()));
}

bool TlsSession::flush() {
  while (!flushed()) {
    const ConstBytes rest = ConstBytes(wire_.unsent).subspan(unsent_begin_);
    const ssize_t taken = ::send(wire_.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)) return false;
    if (taken < 0) broken_ = errno;
    unsent_begin_ += taken < 0 ? rest.size() : static_cast<std::size_t>(taken);
  }
  wire_.unsent.clear();
  unsent_begin_ = 0;
  return true;
}

ssize_t TlsSession::send(ConstBytes head, ConstBytes body) {
  std::size_t accepted = 0;
  if (!flush()) {
    errno = EAGAIN;
    return -1;
  }
  if (!head.empty()) {
    // In one record with what follows it.
    const std::size_t more = std::min(body.size(), record - std::min(head.size(), record));
    together_.assign(head.begin(), head.end());
    together_.insert(together_.end(), body.begin(), body.begin() + static_cast<std::ptrdiff_t>(more));
    accepted = encrypt(together_);
    body = body.subspan(more);
  }
  bool room = true;
  while (broken_ == 0 && !body.empty() && room) {
    const std::size_t taken = encrypt(body.first(std::min(body.size(), batch)));
    accepted += taken;
    body = body.subspan(taken);
    room = flush();
  }
  if (!flushed()) flush();
  if (broken_ == 0) return static_cast<ssize_t>(accepted);
  errno = broken_;
  return -1;
}

// All of `data`, which goes to memory.
std::size_t TlsSession::encrypt(ConstBytes data) {
  bytes_under_key_ += data.size();
  if (bytes_under_key_ > bytes_a_key_) {
    if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
      broken_ = EPROTO;
      return 0;
    }
    bytes_under_key_ = data.size();
  }
  std::size_t total = 0;
  while (total < data.size()) {
    std::size_t taken = 0;
    ERR_clear_error();
    if (SSL_write_ex(ssl_, data.data() + total, data.size() - total, &taken) != 1) {
      broken_ = EPROTO;
      break;
    }
    total += taken;
  }
  return total;
}

ssize_t TlsSession::recv(Bytes into) {
  std::size_t total = 0;
  while (total < into.size()) {
    std::size_t got = 0;
    ERR_clear_error();
    errno = 0;
    const int result = SSL_read_ex(ssl_, into.data() + total, into.size() - total, &got);
    if (result == 1) {
      total += got;
      continue;
    }
    if (total > 0) break;  // the same comes again
    return failed_with(SSL_get_error(ssl_, result));
  }
  return static_cast<ssize_t>(total);
}

ssize_t TlsSession::failed_with(int error) {
  if (error == SSL_ERROR_WANT_READ) {
    errno = EAGAIN;
    return -1;
  }
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  if (error == SSL_ERROR_SSL && problem_.empty()) problem_ = fmt::format("TLS failed: {}", last_problem());
  if (broken_ == 0) broken_ = error == SSL_ERROR_SYSCALL && errno != 0 ? errno : EBADMSG;
  errno = broken_;
  return -1;
}

}  // namespace ranvier::transport

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/secret.h"
#include "base/whole_file.h"
#include "ranvier/error.h"
#include "ranvier/guest_service.h"
#include "ranvier/security.h"

namespace ranvier {
namespace {

constexpr std::string_view prefix = "ranvier-job-key-1 ";

// What somebody gave in place of the file that it is in, of which nothing may be shown: errors go to logs and other
// hosts.
void refuse_contents(std::string_view what, const std::filesystem::path& file) {
  const std::string& text = file.native();
  if (text.find("-----BEGIN") == text.npos && text.find('\n') == text.npos) return;
  throw Error(ErrorKind::config, fmt::format("what is given as the file of the {0} is the text of one and no path: "
                                             "name the file, and where that was a key, make a new one, since others "
                                             "of this host may have read it there",
                                             what));
}

[[noreturn]] void refuse(const std::filesystem::path& file, std::string_view why) {
  if (has_job_key(file.native()))
    throw Error(ErrorKind::config,
                "what is given as the key's file is a key: others of this host may have read it there; make a new one "
                "in a file (ranvier key new > job.key) and name that");
  refuse_contents("job key", file);
  throw Error(ErrorKind::config, fmt::format("the key file '{}' {}", file.string(), why));
}

std::string text_of(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? fmt::format("{:%Y-%m-%d %H:%M} UTC", parts) : "another time";
}

[[noreturn]] void refuse_pem(std::string_view what, const std::filesystem::path& file, std::string_view why) {
  refuse_contents(what, file);
  throw Error(ErrorKind::config, fmt::format("the {} '{}' cannot be used: {}", what, file.string(), why));
}

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

// Over `text`, which outlives it.
Bio reader_of(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

// At least one. `what` the file is, in an error.
std::vector<Certificate> read_certificates(std::string_view what, const std::filesystem::path& file) {
  const WholeFile read = read_whole(file);
  if (!read.problem.empty()) refuse_pem(what, file, read.problem);
  const Bio text = reader_of(read.text);
  std::vector<Certificate> found;
  while (X509* const next = PEM_read_bio_X509_AUX(text.get(), nullptr, nullptr, nullptr))
    found.emplace_back(next, X509_free);
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (found.empty() || !ended) refuse_pem(what, file, "it is not in PEM");
  return found;
}

void check_time(const std::filesystem::path& file, const Certificate& certificate) {
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate.get());
  const ASN1_TIME* const end = X509_get0_notAfter(certificate.get());
  if (X509_cmp_current_time(end) < 0)
    refuse_pem("certificate", file, "it has expired on " + text_of(end) + "; make a new one");
  if (X509_cmp_current_time(begin) > 0)
    refuse_pem("certificate", file, "it is for the time from " + text_of(begin) + " on; is this host's clock right?");
}

void check_private_key(const SecurityOptions& options, const Certificate& certificate) {
  const WholeFile read = read_whole(options.private_key);
  const auto refuse_key = [&](std::string_view why) { refuse_pem("private key", options.private_key, why); };
  if (!read.problem.empty()) refuse_key(read.problem);
  const Bio text = reader_of(read.text);
  // OpenSSL would ask for it at the terminal, in every rank.
  bool has_password = false;
  const auto no_password = [](char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
  };
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(text.get(), nullptr, no_password, &has_password), EVP_PKEY_free);
  const bool fits = key && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (has_password) refuse_key("it takes a password; write it without one (openssl pkey), for its owner only");
  if (!key) refuse_key("it is no private key in PEM");
  if (!fits) refuse_key(fmt::format("the certificate '{}' was made with another one", options.certificate.string()));
}

// What is wrong with it, by the reason that OpenSSL gives and its words for it.
std::string complaint(int reason, const std::string& words, const SecurityOptions& options) {
  switch (reason) {
    case X509_V_ERR_INVALID_PURPOSE:
      return fmt::format(
          "each rank calls others and is called, and it is not for both ({}); make one whose "
          "extendedKeyUsage has serverAuth and clientAuth, or that has none",
          words);
    case X509_V_ERR_EE_KEY_TOO_SMALL:
    case X509_V_ERR_CA_KEY_TOO_SMALL:
    case X509_V_ERR_CA_MD_TOO_WEAK:
      return fmt::format(
          "OpenSSL takes nothing so weak on this host ({}); make keys of RSA with 2048 bits or more, or "
          "of EC, and sign with SHA-256",
          words);
    default:
      return fmt::format("the authority '{}' does not vouch for it ({}); name the one that has signed it",
                         options.authority.string(), words);
  }
}

// As its peers will, whose authority is the same, where they call it and where it calls them.
void check_signature(const SecurityOptions& options, const std::vector<Certificate>& chain) {
  const std::unique_ptr<X509_STORE, decltype(&X509_STORE_free)> trusted(X509_STORE_new(), X509_STORE_free);
  for (const Certificate& each : read_certificates("authority", options.authority))
    X509_STORE_add_cert(trusted.get(), each.get());
  using Stack = STACK_OF(X509);
  const std::unique_ptr<Stack, void (*)(Stack*)> others(sk_X509_new_null(), [](Stack* all) { sk_X509_free(all); });
  for (std::size_t i = 1; i < chain.size(); ++i) sk_X509_push(others.get(), chain[i].get());
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> peer(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  for (const char* const role : {"ssl_server", "ssl_client"}) {
    const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> check(X509_STORE_CTX_new(),
                                                                                X509_STORE_CTX_free);
    bool stands = peer && X509_STORE_CTX_init(check.get(), trusted.get(), chain.front().get(), others.get()) == 1 &&
                  X509_STORE_CTX_set_default(check.get(), role) == 1;
    if (stands) {
      X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(check.get()), SSL_CTX_get_security_level(peer.get()));
      stands = X509_verify_cert(check.get()) == 1;
    }
    ERR_clear_error();
    if (stands) continue;
    const int reason = X509_STORE_CTX_get_error(check.get());
    refuse_pem("certificate", options.certificate, complaint(reason, X509_verify_cert_error_string(reason), options));
  }
}

// Peers would refuse them one by one, each in other words; so their own rank says so first, to all.
void check_certificates(const SecurityOptions& options) {
  const std::vector<Certificate> chain = read_certificates("certificate", options.certificate);
  check_time(options.certificate, chain.front());
  check_private_key(options, chain.front());
  check_signature(options, chain);
}

using Sum = std::array<std::byte, 32>;  // SHA-256

Sum sum_of_key(const std::filesystem::path& file) {
  constexpr std::string_view label = "ranvier fingerprint";
  Sum sum{};
  JobKey key = read_job_key(file);
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(label.data()),
       label.size(), reinterpret_cast<unsigned char*>(sum.data()), nullptr);
  OPENSSL_cleanse(key.data(), key.size());
  return sum;
}

// The same whatever else stands in the file, and in which order.
Sum sum_of_authority(const std::filesystem::path& file) {
  std::set<Sum> each;
  for (const Certificate& certificate : read_certificates("authority", file)) {
    Sum sum{};
    X509_digest(certificate.get(), EVP_sha256(), reinterpret_cast<unsigned char*>(sum.data()), nullptr);
    each.insert(sum);
  }
  const std::vector<Sum> sorted(each.begin(), each.end());
  Sum all{};
  EVP_Digest(sorted.data(), sorted.size() * sizeof(Sum), reinterpret_cast<unsigned char*>(all.data()), nullptr,
             EVP_sha256(), nullptr);
  return all;
}

}  // namespace

JobKey new_job_key() {
  JobKey key;
  fill_with_random(key);
  return key;
}

std::string job_key_text(const JobKey& key) { return std::string(prefix) + hex(key); }

bool has_job_key(std::string_view text) {
  JobKey digits;
  return text.find(prefix) != text.npos || parse_hex(text, digits);
}

JobKey read_job_key(const std::filesystem::path& file) {
  struct stat about {};
  if (stat(file.c_str(), &about) != 0) refuse(file, "is not there; make one with: ranvier key new > job.key");
  if (!S_ISREG(about.st_mode)) refuse(file, "is no file; make one with: ranvier key new > job.key");
  constexpr off_t longest = 4096;  // with much white space
  if (about.st_size > longest) refuse(file, "holds no key of ranvier; make one with: ranvier key new > job.key");
  std::ifstream stream(file);
  std::string line;
  if (!stream || !std::getline(stream, line)) refuse(file, "cannot be read; check its owner and that it is not empty");
  if (line.ends_with('\r')) line.pop_back();  // written on Windows
  const std::string_view digits = std::string_view(line).substr(std::min(prefix.size(), line.size()));
  JobKey key;
  if (!line.starts_with(prefix) || !parse_hex(digits, key))
    refuse(file, "holds no key of ranvier; make one with: ranvier key new > job.key");
  if (std::string more; stream >> more) refuse(file, "holds more than one key; a job has one, in a file of its own");
  // Of a key only: that of another file is not to be changed.
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    refuse(file, fmt::format("can be read by others than its owner; run: chmod 600 {}", file.string()));
  return key;
}

void check_security(const SecurityOptions& options) {
  const bool key = !options.key_file.empty();
  const bool certificate = !options.certificate.empty() || !options.private_key.empty() || !options.authority.empty();
  if (options.insecure && (key || certificate || options.encrypt_everywhere))
    throw Error(ErrorKind::config,
                "insecure contradicts a key, a certificate and encrypt-everywhere; drop one of them");
  if (key && certificate)
    throw Error(ErrorKind::config, "ranks prove who they are by a key or by certificates; name one of them");
  if (certificate && (options.certificate.empty() || options.private_key.empty() || options.authority.empty()))
    throw Error(ErrorKind::config,
                "certificates take three files: name them in --certificate, --private-key and --authority "
                "(RANVIER_CERTIFICATE, RANVIER_PRIVATE_KEY and RANVIER_AUTHORITY)");
  if (certificate) check_certificates(options);
  if (key) read_job_key(options.key_file);
}

void check_certificate_names(const SecurityOptions& options, const std::string& host) {
  if (options.certificate.empty()) return;
  const auto chain = read_certificates("certificate", options.certificate);
  if (X509_check_host(chain.front().get(), host.data(), host.size(), 0, nullptr) != 1)
    refuse_pem("certificate", options.certificate,
               fmt::format("it does not name the host '{0}', as grpc asks of each rank's; make one with "
                           "subjectAltName=DNS:{0}",
                           host));
}

std::string fingerprint(const SecurityOptions& options) {
  constexpr std::size_t bytes = 8;  // enough to tell files apart, and little of what a key could be looked for with
  if (!options.key_file.empty()) return hex(ConstBytes(sum_of_key(options.key_file)).first(bytes));
  if (!options.authority.empty()) return hex(ConstBytes(sum_of_authority(options.authority)).first(bytes));
  return {};
}

void check_guest_security(const SecurityOptions& options) {
  if (options.certificate.empty() && !options.insecure)
    throw Error(ErrorKind::usage,
                "guests of the parameter servers would need no proof of who they are; give --certificate, "
                "--private-key and --authority, or say --insecure if this host and its network may be trusted");
}

}  // namespace ranvier

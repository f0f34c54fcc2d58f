#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "base/secret.h"
#include "base/whole_file.h"
#include "ranvier/error.h"
#include "ranvier/guest_service.h"
#include "ranvier/security.h"

namespace ranvier {
namespace {

constexpr std::string_view prefix = "ranvier-job-key-1 ";

[[noreturn]] void refuse(const std::filesystem::path& file, std::string_view why) {
  throw Error(ErrorKind::config, fmt::format("the key file '{}' {}", file.string(), why));
}

std::string text_of(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? fmt::format("{:%Y-%m-%d %H:%M} UTC", parts) : "another time";
}

// Peers would refuse it one by one, each in other words; so its own rank says so first, to all.
void check_certificate(const std::filesystem::path& file) {
  const auto demand = [&](bool fulfilled, const std::string& why) {
    if (!fulfilled)
      throw Error(ErrorKind::config, fmt::format("the certificate '{}' cannot be used: {}", file.string(), why));
  };
  const WholeFile read = read_whole(file);
  demand(read.problem.empty(), read.problem);
  const std::unique_ptr<BIO, decltype(&BIO_free)> text(
      BIO_new_mem_buf(read.text.data(), static_cast<int>(read.text.size())), BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509_AUX(text.get(), nullptr, nullptr, nullptr), X509_free);
  ERR_clear_error();
  demand(certificate != nullptr, "it is not in PEM");
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate.get());
  const ASN1_TIME* const end = X509_get0_notAfter(certificate.get());
  demand(X509_cmp_current_time(end) >= 0, "it has expired on " + text_of(end) + "; make a new one");
  demand(X509_cmp_current_time(begin) <= 0,
         "it is for the time from " + text_of(begin) + " on; is this host's clock right?");
}

}  // namespace

JobKey new_job_key() {
  JobKey key;
  fill_with_random(key);
  return key;
}

std::string job_key_text(const JobKey& key) { return std::string(prefix) + hex(key); }

JobKey read_job_key(const std::filesystem::path& file) {
  struct stat about {};
  if (stat(file.c_str(), &about) != 0) refuse(file, "is not there; make one with: ranvier key new > job.key");
  if (!S_ISREG(about.st_mode)) refuse(file, "is no file; make one with: ranvier key new > job.key");
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    refuse(file, fmt::format("can be read by others than its owner; run: chmod 600 {}", file.string()));
  std::ifstream stream(file);
  std::string line;
  if (!stream || !std::getline(stream, line)) refuse(file, "cannot be read; check its owner and that it is not empty");
  const std::string_view digits = std::string_view(line).substr(std::min(prefix.size(), line.size()));
  JobKey key;
  if (!line.starts_with(prefix) || !parse_hex(digits, key))
    refuse(file, "holds no key of ranvier; make one with: ranvier key new > job.key");
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
    throw Error(ErrorKind::config, "certificates take three files: a certificate, its private key and the authority");
  if (certificate) check_certificate(options.certificate);
  if (key) read_job_key(options.key_file);
}

void check_guest_security(const SecurityOptions& options) {
  if (options.certificate.empty() && !options.insecure)
    throw Error(ErrorKind::usage,
                "guests of the parameter servers would need no proof of who they are; give --certificate, "
                "--private-key and --authority, or say --insecure if this host and its network may be trusted");
}

}  // namespace ranvier

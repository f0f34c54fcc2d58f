#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>
#include <string_view>

#include "base/secret.h"
#include "ranvier/error.h"
#include "ranvier/guest_service.h"
#include "ranvier/security.h"

namespace ranvier {
namespace {

constexpr std::string_view prefix = "ranvier-job-key-1 ";

[[noreturn]] void refuse(const std::filesystem::path& file, std::string_view why) {
  throw Error(ErrorKind::config, fmt::format("the key file '{}' {}", file.string(), why));
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
  if (key) read_job_key(options.key_file);
}

void check_guest_security(const SecurityOptions& options) {
  if (options.certificate.empty() && !options.insecure)
    throw Error(ErrorKind::usage,
                "guests of the parameter servers would need no proof of who they are; give --certificate, "
                "--private-key and --authority, or say --insecure if this host and its network may be trusted");
}

}  // namespace ranvier

// Who may take part in a job, and what others on the network can read of it.
//
// Connections between hosts are TLS 1.3 (RFC 8446) unless `insecure`, and datagrams are sealed with keys that two ranks
// agree on in TLS. Without a key or certificates a job key is made for each job and goes to its ranks through the store
// where they meet: whoever can read the store can join. A key file keeps others out also where the store is open to
// them. Connections within a host stay plain: who could read those could read the processes too.
//
// Sources: external pre-shared keys with (EC)DHE, RFC 8446 section 2.2 and RFC 9258; guidance, RFC 9257.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ranvier {

struct SecurityOptions {
  std::filesystem::path key_file = {};  // as `ranvier key new` writes it; the same on all ranks
  // Mutual certificates instead of a key, PEM files: each rank's own with its private key, and the authority that has
  // signed everybody's.
  std::filesystem::path certificate = {};
  std::filesystem::path private_key = {};
  std::filesystem::path authority = {};
  bool insecure = false;            // nothing is encrypted; whoever knows the job's token can join
  bool encrypt_everywhere = false;  // also within a host

  friend bool operator==(const SecurityOptions&, const SecurityOptions&) = default;
};

// Throws Error{config} for options that contradict one another, and for a key file or certificate that does not do.
void check_security(const SecurityOptions&);
// A certificate of a job names no host but the job: addresses of workers are known only when they run.
inline constexpr const char* name_in_certificates = "ranvier";
// Throws Error{config} for a certificate that does not name this host, as those of grpc have to name that.
void check_certificate_names(const SecurityOptions&, const std::string& host);

// By which ranks tell that they have other keys, or trust other authorities, before they refuse one another: a few
// digits that follow from the key file or from the authority's certificates. Of a key's 256 random bits they give
// nothing away. Empty where neither is named. Throws as check_security does.
std::string fingerprint(const SecurityOptions&);

// 256 random bits.
using JobKey = std::array<std::byte, 32>;

JobKey new_job_key();
// One line of text, and back. Throws Error{config} for what is no key, and for a file that others than its owner can
// read.
std::string job_key_text(const JobKey&);
// Whether some text is or has a key, or its digits alone: what nobody is to find in a log.
bool has_job_key(std::string_view text);
JobKey read_job_key(const std::filesystem::path&);

}  // namespace ranvier

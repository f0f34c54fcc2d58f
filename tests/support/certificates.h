// Certificates for a test, made by the openssl program and gone when the test ends.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "ranvier/security.h"
#include "support/temporary_folder.h"

namespace ranvier::support {

class Certificates {
 public:
  // The authority whose word `options` take. `comment` makes its certificate longer.
  explicit Certificates(const std::string& authority = "ours", const std::string& comment = "none")
      : authority_(authority) {
    add_authority(authority, comment);
  }

  void add_authority(const std::string& name, const std::string& comment = "none", const std::string& key = new_key) {
    run(fmt::format("openssl req -x509 {} -days 2 -subj /CN={} -addext nsComment={} -keyout {}.key -out {}.pem", key,
                    name, comment, name, name));
  }
  // Of the host "ranvier", as grpc wants it. `days`: below 0 it has expired. `comment` makes it longer.
  void add(const std::string& name, const std::string& signer, int days = 2, const std::string& comment = "none",
           const std::string& host = "ranvier") const {
    add_with("subjectAltName=DNS:" + host + "\nnsComment=" + comment, name, signer, days);
  }
  // With these extensions.
  void add_with(const std::string& extensions, const std::string& name, const std::string& signer, int days = 2) const {
    std::ofstream(folder_.path() / "extensions") << extensions << "\n";
    run(fmt::format("openssl req {} -subj /CN=ranvier -keyout {}.key -out {}.csr", new_key, name, name));
    run(
        fmt::format("openssl x509 -req -in {}.csr -CA {}.pem -CAkey {}.key -CAcreateserial -days {} -extfile "
                    "extensions -out {}.pem",
                    name, signer, signer, days, name));
  }
  SecurityOptions options(const std::string& name) const {
    return {.certificate = folder_.path() / (name + ".pem"),
            .private_key = folder_.path() / (name + ".key"),
            .authority = folder_.path() / (authority_ + ".pem")};
  }

 private:
  static constexpr const char* new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

  void run(const std::string& command) const {
    const std::string all = fmt::format("cd {} && {} >/dev/null 2>&1", folder_.path().string(), command);
    if (std::system(all.c_str()) != 0) ADD_FAILURE() << "failed: " << command;
  }

  const TemporaryFolder folder_;
  const std::string authority_;
};

}  // namespace ranvier::support

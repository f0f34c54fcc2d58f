// AES-128-GCM (NIST SP 800-38D) by OpenSSL, with the nonces of RFC 8446, 5.3, and how keys follow from secrets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ranvier/types.h"

struct evp_cipher_ctx_st;

namespace ranvier::transport {

using Secret = std::array<std::byte, 32>;

// One block of RFC 5869's expand step, with SHA-256.
Secret expanded(const Secret&, ConstBytes info);

// Under one key at a time, either seals or opens.
class AesGcm {
 public:
  static constexpr std::size_t key_bytes = 16;
  static constexpr std::size_t iv_bytes = 12;
  static constexpr std::size_t tag_bytes = 16;
  enum class Task { seal, open };

  void set_key(Task, std::span<const std::byte, key_bytes> key, std::span<const std::byte, iv_bytes> iv);

  // A text by parts: begin(), any number of add(), an end. No two that are sealed under one key may have one number.
  // `clear`: what can be read, and no more changed than the text.
  void begin(std::uint64_t number, ConstBytes clear);
  // Writes as much as it reads; in place too.
  void add(ConstBytes, std::byte* out);
  void end_sealing(std::byte* tag);
  // Whether the text is what was sealed; before that nothing is to be believed of it.
  bool end_opening(ConstBytes tag);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st*) const;
  };
  Task task_ = Task::seal;
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  std::array<std::byte, iv_bytes> iv_{};
};

}  // namespace ranvier::transport

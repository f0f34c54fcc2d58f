#include "transport/aes_gcm.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

void demand(bool done, std::string_view what) {
  if (!done) throw Error(ErrorKind::internal, fmt::format("OpenSSL cannot {}; please report this", what));
}

// Of what lies in no cache the processor's own prefetcher brings less in time than AES could take: at each page it
// begins anew. In steps of so much, each of which asks for what comes so far behind it, 16 MiB take 0.19 s/GB to seal
// and as much to open, without 0.22 and 0.27, and 0.145 in a cache (a virtual Intel Xeon; steps of 1 and 3 KiB do
// worse).
constexpr std::size_t step = 2 << 10;
constexpr std::size_t ahead = 4 << 10;
constexpr std::size_t cache_line = 64;

// An address is all that it takes: where nothing is, nothing happens.
void prefetch(const std::byte* begin) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin) + ahead;
  for (std::size_t i = 0; i < step; i += cache_line) {
    const auto* const line = reinterpret_cast<const void*>(address + i);  // NOLINT(performance-no-int-to-ptr): or none
    __builtin_prefetch(line);
  }
}

}  // namespace

Secret expanded(const Secret& secret, ConstBytes info) {
  std::array<std::byte, 64> input{};
  demand(info.size() < input.size(), "derive a key from so much");
  std::ranges::copy(info, input.begin());
  input[info.size()] = std::byte{1};  // the block's number
  Secret block;
  unsigned size = 0;
  demand(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), raw(input.data()), info.size() + 1,
              raw(block.data()), &size) != nullptr,
         "derive a key");
  return block;
}

void AesGcm::Free::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

void AesGcm::set_key(Task task, std::span<const std::byte, key_bytes> key, std::span<const std::byte, iv_bytes> iv) {
  task_ = task;
  if (!context_) context_.reset(EVP_CIPHER_CTX_new());
  demand(context_ && EVP_CipherInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr, raw(key.data()), nullptr,
                                       task == Task::seal ? 1 : 0) == 1,
         "begin AES-128-GCM");
  std::ranges::copy(iv, iv_.begin());
}

void AesGcm::begin(std::uint64_t number, ConstBytes clear) {
  auto nonce = iv_;
  for (std::size_t i = 0; i < sizeof number; ++i) nonce[4 + i] ^= static_cast<std::byte>(number >> (8 * (7 - i)));
  int size = 0;
  demand(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, raw(nonce.data()), -1) == 1 &&
             EVP_CipherUpdate(context_.get(), nullptr, &size, raw(clear.data()), static_cast<int>(clear.size())) == 1,
         "begin a text in AES-128-GCM");
}

void AesGcm::add(ConstBytes in, std::byte* out) {
  for (int size = 0; !in.empty(); out += size) {
    const ConstBytes now = in.first(std::min(in.size(), step));
    if (now.size() == step) prefetch(task_ == Task::seal ? now.data() : out);
    demand(EVP_CipherUpdate(context_.get(), raw(out), &size, raw(now.data()), static_cast<int>(now.size())) == 1,
           "go on with AES-128-GCM");
    in = in.subspan(now.size());
  }
}

void AesGcm::end_sealing(std::byte* tag) {
  int size = 0;
  demand(EVP_CipherFinal_ex(context_.get(), raw(tag), &size) == 1 &&
             EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, tag_bytes, tag) == 1,
         "seal");
}

bool AesGcm::end_opening(ConstBytes tag) {
  std::array<std::byte, tag_bytes> expected, nothing;
  std::ranges::copy(tag.first(tag_bytes), expected.begin());
  int size = 0;
  return EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, tag_bytes, expected.data()) == 1 &&
         EVP_CipherFinal_ex(context_.get(), raw(nothing.data()), &size) == 1;
}

}  // namespace ranvier::transport

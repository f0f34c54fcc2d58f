// libFuzzer target: every pipeline of include/ranvier/codec.h on hostile bytes. The first byte chooses a spec, the
// second whether the rest is a code, or values that are encoded, come back within reach and are then damaged. Anything
// but values or Error{mismatch} is a finding.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ranvier/codec.h"
#include "ranvier/error.h"

namespace {

using namespace ranvier;
using Input = std::span<const std::uint8_t>;

constexpr std::array<std::string_view, 20> specs{
    "bf16",      "fp16",           "fp8:e4m3", "mx:e2m1",      "natural",       "int8",          "hadamard:32+int4",
    "int2+rans", "qsgd:7+huffman", "terngrad", "sign",         "eden:3",        "topk:0.1",      "topk:0.1+int4+range",
    "randk:0.2", "threshold:0.1",  "lossless", "dct+topk:0.1", "bf16+lossless", "sidco:0.1+eden"};

void require(bool held) {
  if (!held) std::abort();
}

void decode(const Codec& codec, ConstBytes code, std::size_t count) {
  std::vector<float> out(count);
  try {
    codec.decode(code, out);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::mismatch);
  }
}

void encode(const Codec& codec, Input input) {
  std::vector<float> values(input.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), input.data(), values.size() * sizeof(float));
  std::vector<float> residual(codec.state_parts() > 0 ? values.size() : 0);
  std::vector<std::byte> code(codec.max_bytes(values.size()));
  code.resize(codec.encode(values, {.residual = residual}, code, {.seed = values.size()}));
  if (code.empty()) return;
  std::vector<float> out(values.size());
  codec.decode(code, out);  // its own code: whatever it throws is a finding
  for (std::size_t i = 0; i < code.size(); i += 1 + code.size() / 7)
    code[i] ^= static_cast<std::byte>(input[i % input.size()]);
  decode(codec, code, values.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto codecs = [] {
    std::vector<std::unique_ptr<Codec>> made;
    for (const auto spec : specs) made.push_back(make_codec(spec));
    return made;
  }();
  if (size < 4) return 0;
  const Codec& codec = *codecs[data[0] % codecs.size()];
  const Input rest(data + 4, size - 4);
  if (data[1] % 2 == 0)
    decode(codec, std::as_bytes(rest), (std::size_t{data[2]} << 8 | data[3]) % 9000);
  else
    encode(codec, rest);
  return 0;
}

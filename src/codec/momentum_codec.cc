// Momentum before compression: velocity u <- m u + g stands in place of the gradient, p = u + e is coded, and the
// residual is what its code loses, e = p - decoded. With momentum behind it, in the optimizer, the errors of codes are
// multiplied by 1 / (1 - m) before the residual makes up for them. Zheng, Huang and Kwok, "Communication-Efficient
// Distributed Blockwise Momentum SGD with Error-Feedback" (dist-EF-SGDM), NeurIPS 2019 (arXiv:1905.10936).
//
// DGC (dgc.cc) differs in that it also forgets velocity where it has sent.
#include "codec/momentum_codec.h"

#include <algorithm>
#include <vector>

#include "codec/dense_codec.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

// Memory kept from call to call.
std::vector<float>& decayed_memory(std::size_t count) {
  thread_local std::vector<float> memory;
  memory.resize(count);
  return memory;
}

class MomentumCodec final : public Codec {
 public:
  MomentumCodec(std::unique_ptr<Codec> inner, double momentum) : inner_(std::move(inner)), momentum_(momentum) {}
  std::string_view spec() const override { return inner_->spec(); }
  std::size_t max_bytes(std::size_t count) const override { return inner_->max_bytes(count); }
  std::size_t state_parts() const override { return 2; }
  // Owners have sums of velocities, which are not to be added up once more.
  std::shared_ptr<const Codec> for_sums() const override {
    auto other = inner_->for_sums();
    return other ? other : inner_;
  }
  double momentum() const override { return momentum_; }
  double clipping_norm() const override { return inner_->clipping_norm(); }
  bool chooses_by_tensor() const override { return inner_->chooses_by_tensor(); }
  Way way() const override { return inner_->way(); }

  std::size_t encode(std::span<const float> values, const CodecState& state, Bytes out,
                     const CodecKey& key) const override {
    if (state.velocity.empty()) return inner_->encode(values, state, out, key);
    if (!(kernel::largest_magnitude(values.data(), values.size()) <= largest_codable)) return 0;
    std::vector<float>& decayed = decayed_memory(values.size());
    kernel::multiply(state.velocity.data(), static_cast<float>(momentum_), decayed.data(), values.size());
    kernel::add(decayed.data(), values.data(), state.velocity.data(), values.size());
    const std::size_t bytes = inner_->encode(state.velocity, {.residual = state.residual}, out, key);
    // Both together have outgrown what has a code: undecayed, velocity would keep them there.
    if (bytes == 0) std::ranges::copy(decayed, state.velocity.begin());
    return bytes;
  }
  void decode(ConstBytes code, std::span<float> out, Combine combine) const override {
    inner_->decode(code, out, combine);
  }

 private:
  const std::shared_ptr<const Codec> inner_;
  const double momentum_;
};

}  // namespace

std::unique_ptr<Codec> momentum_codec(std::unique_ptr<Codec> inner, double momentum) {
  return std::make_unique<MomentumCodec>(std::move(inner), momentum);
}

}  // namespace ranvier

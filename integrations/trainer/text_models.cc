#include "integrations/trainer/text_models.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <array>

#include "integrations/trainer/layers.h"

namespace ranvier::trainer {
namespace {

// Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation, 1997: one layer of 128 cells, as torch's
// LSTM has them (i, f, g, o in one matrix). Each window of text begins with empty cells.
class Lstm final : public TextModel {
 public:
  explicit Lstm(std::int64_t characters) : embed_(normal_weights({characters, inputs}, 1)), full_({characters, cells}) {
    for (const auto from : {inputs, cells}) weights_.push_back(uniform_weights({4 * cells, from}, cells));
    for (int i = 0; i < 2; ++i) weights_.push_back(uniform_weights({4 * cells}, cells));
  }
  at::Tensor forward(const at::Tensor& text) const override {
    const auto empty = at::zeros({1, text.size(0), cells});
    const auto x =
        std::get<0>(at::lstm(at::embedding(embed_, text), {empty, empty}, weights_, true, 1, 0, false, false, true));
    return linear(x, full_);
  }
  std::vector<at::Tensor> parameters() const override {
    std::vector<at::Tensor> all{embed_};
    all.insert(all.end(), weights_.begin(), weights_.end());
    append(all, full_);
    return all;
  }

 private:
  static constexpr std::int64_t inputs = 64;
  static constexpr std::int64_t cells = 128;
  at::Tensor embed_;
  std::vector<at::Tensor> weights_;
  Layer full_;
};

constexpr std::int64_t width = 96;
constexpr std::int64_t heads = 4;
constexpr std::size_t blocks = 3;

// Attention to the characters in front, then two full layers, each around a sum that runs through all blocks.
class Block {
 public:
  at::Tensor forward(const at::Tensor& x) const {
    const auto n = x.size(0);
    const auto length = x.size(1);
    const auto all = linear(norm(x, norm1_), queries_keys_values_).view({n, length, 3, heads, width / heads});
    const auto part = [&](std::int64_t which) { return all.select(2, which).transpose(1, 2); };
    const auto seen = at::scaled_dot_product_attention(part(0), part(1), part(2), {}, 0, true);
    const auto y = x.add(linear(seen.transpose(1, 2).reshape({n, length, width}), attended_));
    return y.add(linear(at::gelu(linear(norm(y, norm2_), widen_)), narrow_));
  }
  void add_to(std::vector<at::Tensor>& all) const {
    append(all, norm1_);
    append(all, queries_keys_values_);
    append(all, attended_);
    append(all, norm2_);
    append(all, widen_);
    append(all, narrow_);
  }
  static at::Tensor norm(const at::Tensor& x, const Affine& affine) {
    return at::layer_norm(x, width, affine.scale, affine.shift);
  }

 private:
  Affine norm1_{width};
  Layer queries_keys_values_{{3 * width, width}};
  Layer attended_{{width, width}};
  Affine norm2_{width};
  Layer widen_{{4 * width, width}};
  Layer narrow_{{width, 4 * width}};
};

// GPT-2's blocks (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), 3 of width 96, without
// dropout. First weights are drawn as torch's layers draw theirs, and characters are read by other weights than they
// are written: GPT-2's, all of a deviation of 0.02, take more than the few hundred steps of a small run to grow.
class Transformer final : public TextModel {
 public:
  explicit Transformer(std::int64_t characters)
      : embed_(normal_weights({characters, width}, 1)), full_({characters, width}) {}
  at::Tensor forward(const at::Tensor& text) const override {
    auto x = at::embedding(embed_, text).add(places_.narrow(0, 0, text.size(1)));
    for (const auto& block : blocks_) x = block.forward(x);
    return linear(Block::norm(x, norm_), full_);
  }
  std::vector<at::Tensor> parameters() const override {
    std::vector<at::Tensor> all{embed_, places_};
    for (const auto& block : blocks_) block.add_to(all);
    append(all, norm_);
    append(all, full_);
    return all;
  }

 private:
  at::Tensor embed_;
  at::Tensor places_ = normal_weights({window, width}, 0.02);
  std::array<Block, blocks> blocks_{};
  Affine norm_{width};
  Layer full_;
};

}  // namespace

std::unique_ptr<TextModel> make_text_model(std::string_view name, std::int64_t characters) {
  if (name == "lstm") return std::make_unique<Lstm>(characters);
  return std::make_unique<Transformer>(characters);
}

}  // namespace ranvier::trainer

#include "integrations/trainer/text_models.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <tuple>
#include <vector>

#include "integrations/trainer/dataset.h"
#include "integrations/trainer/layer_pair.h"
#include "integrations/trainer/layers.h"

namespace ranvier::trainer {
namespace {

template <class... Parts>
std::vector<at::Tensor> tensors_of(const Parts&... parts) {
  std::vector<at::Tensor> all;
  (append(all, parts), ...);
  return all;
}

// Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation, 1997: one layer of 128 cells, as torch's
// LSTM has them (i, f, g, o in one matrix). Each window of text begins with empty cells.
Pieces lstm(std::int64_t characters) {
  constexpr std::int64_t inputs = 64;
  constexpr std::int64_t cells = 128;
  const auto embed = normal_weights({characters, inputs}, 1);
  const Layer full({characters, cells});
  std::vector<at::Tensor> weights;
  for (const auto from : {inputs, cells}) weights.push_back(uniform_weights({4 * cells, from}, cells));
  for (int i = 0; i < 2; ++i) weights.push_back(uniform_weights({4 * cells}, cells));
  return {{{embed}, [embed](const at::Tensor& text) { return at::embedding(embed, text); }},
          {weights,
           [weights](const at::Tensor& x) {
             const auto empty = at::zeros({1, x.size(0), cells});
             return std::get<0>(at::lstm(x, {empty, empty}, weights, true, 1, 0, false, false, true));
           }},
          {tensors_of(full), [full](const at::Tensor& x) { return linear(x, full); }}};
}

constexpr std::int64_t width = 96;
constexpr std::int64_t heads = 4;
constexpr std::size_t blocks = 3;

at::Tensor norm(const at::Tensor& x, const Affine& affine) {
  return at::layer_norm(x, width, affine.scale, affine.shift);
}

// Attention to the characters in front, then two full layers, each around a sum that runs through all blocks. A team
// that divides matrices deals out the heads and what is between the full layers.
class Block {
 public:
  explicit Block(ModelTeam& team)
      : attention_{Layer({3 * width, width}), Layer({width, width}), heads, team, 3},
        full_{Layer({4 * width, width}), Layer({width, 4 * width}), 4 * width, team} {}
  at::Tensor forward(const at::Tensor& x) const {
    const auto y = x.add(attend(norm(x, norm1_)));
    return y.add(full_.end(at::gelu(full_.begin(norm(y, norm2_)))));
  }
  Piece piece() const {
    Piece piece{tensors_of(norm1_, attention_.first(), attention_.second(), norm2_, full_.first(), full_.second()),
                [block = *this](const at::Tensor& x) { return block.forward(x); }};
    for (const auto& divided :
         {attention_.divided_first(), attention_.divided_second(), full_.divided_first(), full_.divided_second()})
      piece.divided.insert(piece.divided.end(), divided.begin(), divided.end());
    return piece;
  }

 private:
  at::Tensor attend(const at::Tensor& x) const {
    const auto n = x.size(0);
    const auto length = x.size(1);
    const auto all = attention_.begin(x).view({n, length, 3, attention_.units(), width / heads});
    const auto part = [&](std::int64_t which) { return all.select(2, which).transpose(1, 2); };
    const auto seen = at::scaled_dot_product_attention(part(0), part(1), part(2), {}, 0, true);
    return attention_.end(seen.transpose(1, 2).flatten(2));
  }

  Affine norm1_{width};
  LayerPair attention_;  // queries, keys and values of each head, and what is seen by them
  Affine norm2_{width};
  LayerPair full_;
};

// GPT-2's blocks (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), 3 of width 96, without
// dropout. First weights are drawn as torch's layers draw theirs, and characters are read by other weights than they
// are written: GPT-2's, all of a deviation of 0.02, take more than the few hundred steps of a small run to grow.
Pieces transformer(std::int64_t characters, ModelTeam& team) {
  const auto embed = normal_weights({characters, width}, 1);
  const auto places = normal_weights({window, width}, 0.02);
  Pieces model{{{embed, places}, [embed, places](const at::Tensor& text) {
                  return at::embedding(embed, text).add(places.narrow(0, 0, text.size(1)));
                }}};
  for (std::size_t i = 0; i < blocks; ++i) model.push_back(Block(team).piece());
  const Affine last(width);
  const Layer full({characters, width});
  model.push_back({tensors_of(last, full), [last, full](const at::Tensor& x) { return linear(norm(x, last), full); }});
  return model;
}

}  // namespace

Pieces make_text_model(std::string_view name, std::int64_t characters, ModelTeam& team) {
  return name == "lstm" ? lstm(characters) : transformer(characters, team);
}

}  // namespace ranvier::trainer

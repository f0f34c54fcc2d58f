// Ratios by layer. Exponent 1, the same ratio in each tensor: Shi et al., "Layer-wise Adaptive Gradient Sparsification
// for Distributed Deep Learning with Convergence Guarantees" (LAGS-SGD), ECAI 2020 (arXiv:1911.08727). Below 1, small
// tensors send a larger share: 0.5 is, of square matrices, the Erdos-Renyi rule, a density in proportion to (rows +
// columns) / (rows * columns): Mocanu et al., Nature Communications 2018 (arXiv:1707.04780); Evci et al., "Rigging the
// Lottery", ICML 2020 (arXiv:1911.11134).
#include "codec/layers.h"

#include <algorithm>
#include <cmath>

#include "codec/stages.h"
#include "codec/top_k.h"

namespace ranvier {

std::vector<TensorPiece> cut(std::span<const TensorPiece> pieces, std::size_t begin, std::size_t count) {
  std::vector<TensorPiece> inside;
  std::size_t at = 0;
  for (const TensorPiece& piece : pieces) {
    const std::size_t from = std::max(at, begin), to = std::min(at + piece.size, begin + count);
    if (from < to) inside.push_back({.size = to - from, .of = piece.of});
    at += piece.size;
  }
  return inside;
}

std::vector<std::size_t> shares_of_tensors(std::size_t k, std::span<const TensorPiece> pieces, double exponent,
                                           std::uint64_t seed) {
  std::vector<double> due(pieces.size());
  std::vector<bool> whole(pieces.size());
  const auto weight = [&](std::size_t i) {
    return static_cast<double>(pieces[i].size) *
           std::pow(static_cast<double>(std::max<std::size_t>(pieces[i].of, 1)), exponent - 1);
  };
  // What is beyond a piece's size goes to the others, whose due may then be beyond theirs.
  for (double left = static_cast<double>(k); left > 0;) {
    double weights = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) weights += whole[i] ? 0 : weight(i);
    if (weights == 0) break;
    const double unit = left / weights;
    bool more = false;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (whole[i]) continue;
      const auto size = static_cast<double>(pieces[i].size);
      due[i] = unit * weight(i);
      if (due[i] < size) continue;
      due[i] = size;
      left -= size;
      whole[i] = more = true;
    }
    if (!more) break;
  }
  // Systematic sampling: where the running sum passes a whole number, from a random beginning.
  const double begin = static_cast<double>(mix(seed) >> 11) * 0x1p-53;
  std::vector<std::size_t> shares(pieces.size());
  double sum = begin;
  std::size_t given = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    sum += due[i];
    const auto up_to = std::min(static_cast<std::size_t>(sum), k);
    shares[i] = std::min(up_to - std::min(given, up_to), pieces[i].size);
    given += shares[i];
  }
  return shares;
}

void choose_by_tensor(std::span<const float> values, std::size_t k, std::span<const TensorPiece> pieces,
                      double exponent, std::uint64_t seed, std::vector<std::uint32_t>& chosen) {
  const auto shares = shares_of_tensors(k, pieces, exponent, seed);
  std::vector<std::uint32_t> own;
  chosen.clear();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    choose_top_k(values.subspan(begin, pieces[i].size), shares[i], own);
    for (const std::uint32_t index : own) chosen.push_back(static_cast<std::uint32_t>(begin) + index);
    begin += pieces[i].size;
  }
}

}  // namespace ranvier

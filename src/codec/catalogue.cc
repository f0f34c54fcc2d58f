#include "codec/catalogue.h"

#include <algorithm>
#include <array>
#include <vector>

namespace ranvier {
namespace {

void add_coder(Parameters& parameters, Draft& draft) { draft.coder = make_coder(parameters.stage()); }
void add_lossless(Parameters&, Draft& draft) { draft.lossless = true; }
void add_delta(Parameters&, Draft& draft) { draft.differences = draft.biased = true; }
void add_normalize(Parameters&, Draft& draft) { draft.normalized = true; }

constexpr auto sparsify = StageKind::sparsify;
constexpr auto transform = StageKind::transform;
constexpr auto quantize = StageKind::quantize;
constexpr auto code = StageKind::code;
constexpr auto exchange = StageKind::exchange;

constexpr std::array all{
    Stage{{"powersgd", exchange, "matrices as products of thin factors, which are averaged; small tensors as they are",
           "value: rank (4); bf16 or fp16 behind it codes the factors", "biased", "Vogels et al. 2019"},
          nullptr},
    Stage{{"acpsgd", exchange, "the same, one factor a step in turn: half of the bytes and of the messages",
           "value: rank (4); bf16 or fp16 behind it codes the factors", "biased", "Zhang et al. 2023"},
          nullptr},
    Stage{{"thc", exchange, "integers on a grid that all ranks share, added up in transit by an all_reduce",
           "value: bits of a sum, 4 or 8 (8)", "biased", "Li et al. 2024"},
          nullptr},
    Stage{{"switchml", exchange, "integers with a scale a block that all ranks agree on first, added up in transit", "",
           "biased", "Sapio et al. 2021"},
          nullptr},
    Stage{
        {"demo", exchange,
         "signs of the largest cosine coefficients of each rank's own momentum, a matrix in chunks; for plain SGD at a "
         "rate "
         "of 0.001 or so",
         "value: coefficients of a chunk (32); chunk=64, its sides; decay=0.999; sign=1", "biased", "Peng et al. 2024"},
        nullptr},
    Stage{{"topk", sparsify, "the values of the largest magnitude",
           "value: share of all values (0.01); select=exact|sampled; layers=0 to 1: by tensor", "biased",
           "Aji, Heafield 2017"},
          add_top_k},
    Stage{{"sidco", sparsify, "about so many of them, by a fitted threshold", "value: share of all values (0.01)",
           "biased", "Abdelmoniem et al. 2021"},
          add_sidco},
    Stage{{"dgc", sparsify, "the largest sums of corrected momentum",
           "value: share of all values (0.001); momentum=0.9; warmup=0 steps; clip=0 (none), the largest norm of a "
           "tensor; "
           "layers=0 to 1: by tensor",
           "biased", "Lin et al. 2018"},
          add_dgc},
    Stage{{"randk", sparsify, "values at random places that need no index", "value: share of all values (0.01)",
           "biased", "Stich et al. 2018"},
          add_random_k},
    Stage{{"threshold", sparsify, "values of at least a magnitude", "value: that magnitude (0.001)", "biased",
           "Strom 2015"},
          add_threshold},
    Stage{{"delta", transform, "changes since the last step instead of values; stands first: delta+topk:0.01 is EF21",
           "", "biased", "Richtarik et al. 2021"},
          add_delta},
    Stage{
        {"normalize", transform,
         "values over the mean magnitude of averages in their place, for Adam; stands first, and has no error feedback",
         "", "exact", "docs/codecs.md"},
        add_normalize},
    Stage{{"hadamard", transform, "random signs and a Hadamard transform: outliers are spread over a block",
           "value: values in a block (64)", "exact", "Suresh et al. 2017"},
          add_hadamard},
    Stage{{"dct", transform, "discrete cosine transform; before a sparsifier: dct+topk:0.02",
           "value: values in a run, 64 at most (64)", "exact", "Peng et al. 2024"},
          add_dct},
    Stage{{"fp32", quantize, "as they are", "", "exact", ""}, add_fp32},
    Stage{{"bf16", quantize, "bfloat16, nearest even", "", "relative error 2^-8 at most", "Kalamkar et al. 2019"},
          add_bf16},
    Stage{{"fp16", quantize, "IEEE half, nearest even, saturating", "", "relative error 2^-11 from 2^-14 to 65504",
           "Micikevicius et al. 2018"},
          add_fp16},
    Stage{{"fp8", quantize, "a float of 8 bits without scale, saturating", "value: e5m2|e4m3", "biased",
           "Micikevicius et al. 2022"},
          add_fp8},
    Stage{{"mx", quantize, "blocks of 32 small floats that share a power of two", "value: e4m3|e5m2|e2m1", "biased",
           "Rouhani et al. 2023"},
          add_mx},
    Stage{{"natural", quantize, "a power of two, at random one of the two beside the value", "", "unbiased",
           "Horvath et al. 2022"},
          add_natural},
    Stage{
        {"int8", quantize, "integers of 8 bits, a scale a block", "block=64; norm=max|l2; rounding=nearest|stochastic",
         "biased; unbiased if stochastic", "Dettmers et al. 2022"},
        add_int8},
    Stage{{"int4", quantize, "integers of 4 bits, a scale a block",
           "block=64; norm=max|l2; rounding=nearest|stochastic", "biased; unbiased if stochastic", "Jia et al. 2024"},
          add_int4},
    Stage{{"int2", quantize, "-1, 0 or 1 times a scale a block: 1.6 bits and a scale",
           "block=64; norm=max|l2; rounding=nearest|stochastic", "biased; unbiased if stochastic",
           "Dettmers et al. 2022"},
          add_int2},
    Stage{{"qsgd", quantize, "random rounding to s steps a side; put a coder behind it",
           "value: steps (7); block=128; norm=max|l2; rounding=stochastic|nearest", "unbiased; biased if nearest",
           "Alistarh et al. 2017"},
          add_qsgd},
    Stage{{"terngrad", quantize, "-1, 0 or 1 at random, times a scale a block", "block=1024; clip=1",
           "unbiased but for clipping", "Wen et al. 2017"},
          add_terngrad},
    Stage{{"sign", quantize, "the sign times the mean magnitude of a block", "block=1024", "biased",
           "Seide et al. 2014; Karimireddy et al. 2019"},
          add_sign},
    Stage{
        {"eden", quantize, "Hadamard, normal codebook, unbiased scale (DRIVE at 1 bit)",
         "value: bits, 1 to 4 (1); block=1024",
         "unbiased in large blocks whose norm is not that of a few values, else behind a hadamard:1024; at 1 bit with "
         "error feedback nevertheless",
         "Vargaftik et al. 2021, 2022"},
        add_eden},
    Stage{{"rans", code, "asymmetric numeral systems", "", "exact", "Duda 2013"}, add_coder},
    Stage{{"huffman", code, "canonical Huffman codes", "", "exact", "Huffman 1952"}, add_coder},
    Stage{{"range", code, "adaptive arithmetic coding", "", "exact", "Moffat et al. 1998"}, add_coder},
    Stage{{"zstd", code, "Zstandard, to compare with", "", "exact", "RFC 8878"}, add_coder},
    Stage{{"elias_gamma", code, "fixed code, short for symbols near zero", "", "exact", "Elias 1975"}, add_coder},
    Stage{{"elias_delta", code, "fixed code, short for symbols near zero", "", "exact", "Elias 1975"}, add_coder},
    Stage{{"golomb_rice", code, "Golomb code, short for symbols near zero", "", "exact", "Golomb 1966, Rice 1979"},
          add_coder},
    Stage{{"lossless", code, "planes of floats by rANS, zeros as a bitmap; behind nothing or bf16", "", "exact",
           "Hershcovitch et al. 2024"},
          add_lossless},
};

}  // namespace

std::span<const Stage> stages() { return all; }

std::span<const StageInfo> codec_stages() {
  static const std::vector<StageInfo> infos = [] {
    std::vector<StageInfo> list;
    for (const Stage& stage : all) list.push_back(stage.info);
    return list;
  }();
  return infos;
}

std::string_view name_of(StageKind kind) {
  constexpr std::array<std::string_view, 5> names{"sparsify", "transform", "quantize", "code", "exchange"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace ranvier

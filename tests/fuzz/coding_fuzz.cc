// libFuzzer target: every decoder of include/ranvier/coding.h on hostile bytes. Two kinds of input: bytes that go to a
// decoder as they are, and symbols that are encoded first, come back whole, and are then damaged, which reaches what
// lies behind the headers. Anything but a result or Error{mismatch} is a finding.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "ranvier/coding.h"
#include "ranvier/error.h"

namespace {

using namespace ranvier;
using Input = std::span<const std::uint8_t>;
using Code = std::vector<std::byte>;

constexpr std::size_t most_symbols = 1 << 18;
constexpr std::size_t marks_bytes = 8;  // at the front of inputs of the second kind: the damage

void require(bool held) {
  if (!held) std::abort();
}

template <class Decode>
void expect_result_or_mismatch(Decode decode) {
  try {
    decode();
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::mismatch);
  }
}

// Two bytes of `marks` a change: where, and what it is changed by.
Code damaged(Code code, Input marks) {
  for (std::size_t i = 0; i + 1 < marks.size() && !code.empty(); i += 2)
    code[marks[i] * code.size() / 256] ^= static_cast<std::byte>(marks[i + 1]);
  return code;
}

// Long enough for every format, by repeating what the fuzzer gave.
std::vector<std::uint8_t> repeated(Input body, std::size_t times) {
  std::vector<std::uint8_t> all;
  for (std::size_t i = 0; i < times && all.size() + body.size() <= most_symbols; ++i)
    all.insert(all.end(), body.begin(), body.end());
  return all;
}

void try_coder(const Coder& coder, bool whole, std::size_t count, Input input) {
  std::vector<std::uint8_t> out(count);
  if (!whole) {
    expect_result_or_mismatch([&] { coder.decode(std::as_bytes(input), out); });
    return;
  }
  const Input marks = input.first(std::min(input.size(), marks_bytes)), body = input.subspan(marks.size());
  const auto symbols = repeated(body, 1 + count % 512);
  Code code(coder.max_bytes(symbols.size()));
  code.resize(coder.encode(symbols, code));
  out.resize(symbols.size());
  coder.decode(code, out);
  require(out == symbols);
  expect_result_or_mismatch([&] { coder.decode(damaged(code, marks), out); });
}

void try_indices(bool whole, std::size_t count, Input input) {
  std::vector<std::uint32_t> out(count);
  if (!whole) {
    const auto universe = static_cast<std::uint32_t>(count * 37 + 1);
    expect_result_or_mismatch([&] { decode_indices(std::as_bytes(input), universe, out); });
    return;
  }
  const Input marks = input.first(std::min(input.size(), marks_bytes)), body = input.subspan(marks.size());
  std::vector<std::uint32_t> indices;
  std::uint32_t next = 0;
  for (const std::uint8_t gap : body) {
    indices.push_back(next + gap);
    next += gap + 1U;
  }
  const std::uint32_t universe = next + static_cast<std::uint32_t>(count) + 1;
  Code code(max_index_bytes(indices.size(), universe));
  code.resize(encode_indices(indices, universe, code));
  out.resize(indices.size());
  decode_indices(code, universe, out);
  require(out == indices);
  expect_result_or_mismatch([&] { decode_indices(damaged(code, marks), universe, out); });
}

void try_lossless(DType type, bool whole, std::size_t count, Input input) {
  std::vector<std::uint8_t> out(count * size_of(type));
  if (!whole) {
    expect_result_or_mismatch([&] { decode_lossless(std::as_bytes(input), {out.data(), count, type}); });
    return;
  }
  const Input marks = input.first(std::min(input.size(), marks_bytes)), body = input.subspan(marks.size());
  auto values = repeated(body, 1 + count % 64);
  count = values.size() / size_of(type);
  values.resize(count * size_of(type));
  Code code(max_lossless_bytes(count, type));
  code.resize(encode_lossless({values.data(), count, type}, code));
  out.resize(values.size());
  decode_lossless(code, {out.data(), count, type});
  require(out == values);
  expect_result_or_mismatch([&] { decode_lossless(damaged(code, marks), {out.data(), count, type}); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Input input(data, size);
  if (size < 4) return 0;
  const std::size_t coders = coder_names().size();
  const std::size_t which = input[0] / 2 % (coders + 3);
  const bool whole = input[0] % 2;
  const std::size_t count = (input[1] | input[2] << 8 | input[3] << 16) % most_symbols;
  const Input rest = input.subspan(4);
  if (which < coders)
    try_coder(*make_coder(coder_names()[which]), whole, count, rest);
  else if (which == coders)
    try_indices(whole, count, rest);
  else
    try_lossless(which == coders + 1 ? DType::f32 : DType::bf16, whole, count, rest);
  return 0;
}

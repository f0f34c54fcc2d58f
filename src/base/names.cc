// The one spelling of every type, reduction, collective and error kind.
#include <algorithm>
#include <utility>

#include "ranvier/error.h"
#include "ranvier/types.h"

namespace ranvier {
namespace {

template <class Value, std::size_t n>
constexpr std::string_view find_name(const std::pair<Value, std::string_view> (&table)[n], Value value) {
  for (const auto& [candidate, name] : table)
    if (candidate == value) return name;
  return "?";
}

template <class Value, std::size_t n>
constexpr std::optional<Value> find_value(const std::pair<Value, std::string_view> (&table)[n], std::string_view word) {
  for (const auto& [value, name] : table)
    if (name == word) return value;
  return std::nullopt;
}

constexpr std::pair<DType, std::string_view> dtype_names[] = {
    {DType::f32, "f32"}, {DType::f64, "f64"}, {DType::f16, "f16"}, {DType::bf16, "bf16"}, {DType::i8, "i8"},
    {DType::i16, "i16"}, {DType::i32, "i32"}, {DType::i64, "i64"}, {DType::u8, "u8"},     {DType::boolean, "bool"}};

// Other spellings that people type: torch's, NumPy's and nccl-tests'.
constexpr std::pair<DType, std::string_view> dtype_synonyms[] = {
    {DType::f32, "float"},      {DType::f32, "float32"},   {DType::f32, "fp32"},  {DType::f64, "double"},
    {DType::f64, "float64"},    {DType::f64, "fp64"},      {DType::f16, "half"},  {DType::f16, "float16"},
    {DType::f16, "fp16"},       {DType::bf16, "bfloat16"}, {DType::i8, "int8"},   {DType::i16, "int16"},
    {DType::i32, "int32"},      {DType::i32, "int"},       {DType::i64, "int64"}, {DType::u8, "uint8"},
    {DType::boolean, "boolean"}};

constexpr std::pair<ReduceOp, std::string_view> op_names[] = {
    {ReduceOp::sum, "sum"}, {ReduceOp::average, "average"}, {ReduceOp::product, "product"}, {ReduceOp::min, "min"},
    {ReduceOp::max, "max"}, {ReduceOp::bit_and, "and"},     {ReduceOp::bit_or, "or"},       {ReduceOp::bit_xor, "xor"}};
constexpr std::pair<ReduceOp, std::string_view> op_synonyms[] = {{ReduceOp::average, "avg"},
                                                                 {ReduceOp::product, "prod"},
                                                                 {ReduceOp::bit_and, "band"},
                                                                 {ReduceOp::bit_or, "bor"},
                                                                 {ReduceOp::bit_xor, "bxor"}};

constexpr std::pair<Collective, std::string_view> collective_names[] = {
    {Collective::all_reduce, "all_reduce"},
    {Collective::reduce, "reduce"},
    {Collective::broadcast, "broadcast"},
    {Collective::all_gather, "all_gather"},
    {Collective::reduce_scatter, "reduce_scatter"},
    {Collective::all_to_all, "all_to_all"},
    {Collective::gather, "gather"},
    {Collective::scatter, "scatter"},
    {Collective::neighbor_exchange, "neighbor_exchange"},
    {Collective::barrier, "barrier"},
    {Collective::send, "send"},
    {Collective::recv, "recv"}};

constexpr std::pair<ErrorKind, std::string_view> kind_names[] = {
    {ErrorKind::usage, "usage"},         {ErrorKind::config, "config"},     {ErrorKind::unreachable, "unreachable"},
    {ErrorKind::peer_lost, "peer lost"}, {ErrorKind::mismatch, "mismatch"}, {ErrorKind::timeout, "timeout"},
    {ErrorKind::aborted, "aborted"},     {ErrorKind::internal, "internal"}};

}  // namespace

std::string_view name_of(DType type) { return find_name(dtype_names, type); }
std::string_view name_of(ReduceOp op) { return find_name(op_names, op); }
std::string_view name_of(Collective collective) { return find_name(collective_names, collective); }
std::string_view name_of(ErrorKind kind) { return find_name(kind_names, kind); }

std::optional<DType> parse_dtype(std::string_view word) {
  if (auto found = find_value(dtype_names, word)) return found;
  return find_value(dtype_synonyms, word);
}
std::optional<ReduceOp> parse_reduce_op(std::string_view word) {
  if (auto found = find_value(op_names, word)) return found;
  return find_value(op_synonyms, word);
}
std::optional<Collective> parse_collective(std::string_view word) { return find_value(collective_names, word); }
std::optional<ErrorKind> parse_error_kind(std::string_view word) { return find_value(kind_names, word); }

}  // namespace ranvier

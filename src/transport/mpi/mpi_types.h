// The types and operations of MPI that are those of ranvier.
#pragma once

#include <mpi.h>

#include "ranvier/types.h"

namespace ranvier::transport {

// MPI_DATATYPE_NULL where MPI has no such type: it knows neither half precision nor bfloat16.
inline MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::i8:
      return MPI_INT8_T;
    case DType::i16:
      return MPI_INT16_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
    case DType::u8:
      return MPI_UINT8_T;
    case DType::boolean:
      return MPI_C_BOOL;
    case DType::f16:
    case DType::bf16:
      return MPI_DATATYPE_NULL;
  }
  return MPI_DATATYPE_NULL;
}

// MPI_OP_NULL where MPI has none. Of booleans sum and max are "or", product and min are "and".
inline MPI_Op op_of(ReduceOp op, DType dtype) {
  const bool boolean = dtype == DType::boolean;
  switch (op) {
    case ReduceOp::sum:
      return boolean ? MPI_LOR : MPI_SUM;
    case ReduceOp::product:
      return boolean ? MPI_LAND : MPI_PROD;
    case ReduceOp::min:
      return boolean ? MPI_LAND : MPI_MIN;
    case ReduceOp::max:
      return boolean ? MPI_LOR : MPI_MAX;
    case ReduceOp::bit_and:
      return boolean ? MPI_LAND : MPI_BAND;
    case ReduceOp::bit_or:
      return boolean ? MPI_LOR : MPI_BOR;
    case ReduceOp::bit_xor:
      return boolean ? MPI_LXOR : MPI_BXOR;
    case ReduceOp::average:
      return MPI_OP_NULL;
  }
  return MPI_OP_NULL;
}

}  // namespace ranvier::transport

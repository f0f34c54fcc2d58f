#include "integrations/torch/errors.h"

#include <c10/util/Exception.h>

#include <string>

#include "ranvier/error.h"

namespace ranvier::pytorch {
namespace {

template <class TorchError>
std::exception_ptr as(const std::string& text) {
  // Neither file nor line: the sentence says where, in the words of the caller.
  return std::make_exception_ptr(TorchError(text));
}

std::exception_ptr translate(const Error& error) {
  std::string text = error.what();
  if (!error.flight_record().empty()) text += "\nLast operations of this rank:\n" + error.flight_record();
  while (text.ends_with('\n')) text.pop_back();
  switch (error.kind()) {
    case ErrorKind::usage:
      return as<c10::ValueError>(text);
    case ErrorKind::unreachable:
    case ErrorKind::peer_lost:
      return as<c10::DistNetworkError>(text);
    case ErrorKind::config:
    case ErrorKind::mismatch:
    case ErrorKind::timeout:
    case ErrorKind::aborted:
    case ErrorKind::internal:
      break;
  }
  return as<c10::DistBackendError>(text);
}

}  // namespace

std::exception_ptr to_torch(std::exception_ptr error) {
  if (!error) return error;
  try {
    std::rethrow_exception(error);
  } catch (const Error& mine) {
    return translate(mine);
  } catch (...) {
    return error;
  }
}

}  // namespace ranvier::pytorch

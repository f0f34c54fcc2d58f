// What ranvier throws. The kind says the remedy; what() is one sentence that names the thing and what to do about it.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ranvier/types.h"

namespace ranvier {

enum class ErrorKind {
  usage,        // the caller passed something impossible: fix the call
  config,       // a setting, file or environment is wrong: fix it and start again
  unreachable,  // a peer or address could not be reached: check the network, then retry
  peer_lost,    // a rank died or went silent: restart it, or go on without it
  mismatch,     // ranks disagree on what they are doing: fix the program
  timeout,      // a deadline passed: retry, or allow more time
  aborted,      // another rank failed first; its error is quoted
  internal      // ranvier broke its own rules: report a bug
};

std::string_view name_of(ErrorKind);
std::optional<ErrorKind> parse_error_kind(std::string_view);

class Error : public std::runtime_error {
 public:
  // Characters of the sentence that would steer a terminal are written as \x1b: it may quote what others sent.
  Error(ErrorKind kind, const std::string& sentence, Rank culprit = -1);

  ErrorKind kind() const { return kind_; }
  // The rank whose death, silence or mistake this is, as its communicator numbers them; -1 where no single rank is to
  // blame.
  Rank culprit() const { return culprit_; }

  // The last operations of this communicator when the error arose, one per line; empty outside an operation.
  const std::string& flight_record() const { return flight_record_; }
  // Of the record, too, such characters are written out: it may be another rank's.
  Error with_flight_record(std::string_view record) const;

 private:
  ErrorKind kind_;
  Rank culprit_;
  std::string flight_record_;
};

}  // namespace ranvier

// libFuzzer target: the lines by which processes of a benchmark talk, from ranks and other libraries' programs. What is
// a job says the same again; anything else but an answer or Error{mismatch} is a finding, a failure that is quoted
// apart, which is what it says it is and steers no terminal.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "bench/job.h"
#include "bench/peer.h"
#include "ranvier/error.h"

namespace {

using namespace ranvier;
using namespace ranvier::bench;

void require(bool held) {
  if (!held) std::abort();
}

bool steers(std::string_view text) {
  return std::ranges::any_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string line(reinterpret_cast<const char*>(data), size);
  std::optional<Job> job;
  try {
    job = job_from_line(line);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::mismatch);
  }
  if (job) require(job_from_line(to_line(*job)) == *job);
  const auto failure = failure_of(line);
  if (failure) require(!steers(failure->what()) && !steers(failure->flight_record()));
  std::optional<Reply> reply;
  try {
    reply = reply_from_line(line);
  } catch (const Error& error) {
    require(failure || error.kind() == ErrorKind::mismatch);
  }
  if (!reply) return 0;
  require(!failure);
  const Reply again = reply_from_line(to_line(*reply));
  require(again.wrong == reply->wrong && again.refusal.empty() == reply->refusal.empty());
  return 0;
}

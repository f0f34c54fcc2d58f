#include "bench/peer.h"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <sstream>
#include <utility>

#include "bench/kernel_packets.h"
#include "bench/pattern.h"
#include "ranvier/error.h"

namespace ranvier::bench {
namespace {

constexpr std::size_t page = 4096;
constexpr std::string_view done_word = "done";
constexpr std::string_view refused_word = "refused";
constexpr std::string_view failed_word = "failed";

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Of all threads of this process, in the program and in the kernel.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

PacketCounts grown(const PacketCounts& before, const PacketCounts& after) {
  return {.sent = after.sent - before.sent,
          .lost = after.lost > before.lost ? after.lost - before.lost : 0,
          .refused = after.refused - before.refused};
}

std::string to_line(const Reply& reply) {
  if (!reply.refusal.empty()) return fmt::format("{} {}", refused_word, one_line(reply.refusal));
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", done_word, reply.seconds, reply.wrong,
                     reply.cpu_seconds, reply.losses.due, reply.losses.missing, reply.packets.sent, reply.packets.lost,
                     reply.packets.refused, reply.error, reply.kernel.sent, reply.kernel.lost, reply.kernel.refused,
                     reply.network, reply.fell_back ? 1 : 0);
}

// "failed KIND<tab>SENTENCE<tab>RECORD", whose lines have tabs for their ends.
std::string failure_line(const Error& error) {
  std::string sentence = error.what();
  std::replace(sentence.begin(), sentence.end(), '\t', ' ');
  std::string line = fmt::format("{} {}\t{}", failed_word, name_of(error.kind()), one_line(sentence));
  line.resize(std::min(line.size(), Lines::longest - 1));
  std::string_view record = error.flight_record();
  while (line.size() + 1 + record.size() > Lines::longest)
    record.remove_prefix(std::min(record.find('\n'), record.size() - 1) + 1);
  line += '\t';
  std::ranges::replace_copy(record, std::back_inserter(line), '\n', '\t');
  return line;
}

std::optional<Error> failure_of(std::string_view line) {
  const auto next = [&line](char end) {
    const std::size_t size = std::min(line.find(end), line.size());
    const std::string_view part = line.substr(0, size);
    line.remove_prefix(std::min(size + 1, line.size()));
    return part;
  };
  if (next(' ') != failed_word) return std::nullopt;
  const ErrorKind kind = parse_error_kind(next('\t')).value_or(ErrorKind::internal);
  const std::string sentence(next('\t'));
  std::string record(line);
  std::replace(record.begin(), record.end(), '\t', '\n');
  return Error(kind, sentence).with_flight_record(record);
}

Reply reply_from_line(const std::string& line) {
  if (const auto failure = failure_of(line)) throw *failure;
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::string_view word = std::string_view(line).substr(0, space);
  const std::string rest = line.substr(std::min(space + 1, line.size()));
  Reply reply;
  if (word == refused_word && !rest.empty()) {
    reply.refusal = rest;
    return reply;
  }
  std::istringstream numbers(rest);
  if (word != done_word || !(numbers >> reply.seconds >> reply.wrong))
    throw Error(ErrorKind::mismatch,
                fmt::format("'{}' is no answer of a rank; do both sides come from one build?", line));
  if (!(numbers >> reply.cpu_seconds)) reply.cpu_seconds = 0;
  if (!(numbers >> reply.losses.due >> reply.losses.missing)) reply.losses = {};
  PacketCounts &packets = reply.packets, &kernel = reply.kernel;
  if (!(numbers >> packets.sent >> packets.lost >> packets.refused >> reply.error)) packets = {};
  if (!(numbers >> kernel.sent >> kernel.lost >> kernel.refused >> reply.network)) reply.network = 0;
  int fell_back = 0;
  reply.fell_back = numbers >> fell_back && fell_back != 0;
  return reply;
}

std::shared_ptr<std::byte[]> Peer::allocate(std::size_t bytes) {
  const std::size_t pages = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(page, pages));
  if (memory == nullptr)
    throw Error(ErrorKind::config, fmt::format("no memory for a buffer of {} bytes; lower --maxbytes", pages));
  return {memory, [](std::byte* each) { std::free(each); }};
}

std::byte* Memory::reserve(std::size_t bytes) {
  if (memory_ == nullptr || bytes > bytes_) {
    memory_.reset();  // before the next one is made: two of the largest might not fit
    memory_ = peer_.allocate(bytes);
    bytes_ = bytes;
  }
  return memory_.get();
}

Measurer::Measurer(Peer& peer) : peer_(peer), network_(counting_network()), input_(peer), output_(peer) {}

Reply Measurer::measure(const Job& job) {
  Reply reply;
  reply.refusal = peer_.refusal(job);
  if (!reply.refusal.empty()) return reply;

  const Shape shape = shape_of(job, peer_.rank(), peer_.world());
  const std::size_t size = size_of(job.dtype);
  const std::size_t output_bytes = (job.in_place ? shape.buffer : shape.output) * size;
  std::byte* output = output_.reserve(output_bytes);
  std::byte* input = job.in_place ? output + shape.input_at * size : input_.reserve(shape.input * size);
  std::memset(output, static_cast<int>(untouched), output_bytes);
  if (job.in_place) output += shape.output_at * size;
  fill_input(job, peer_.rank(), peer_.world(), input);
  peer_.prepare(job, input, output);

  peer_.barrier();
  const LossCounts before = peer_.losses();
  const PacketCounts packets_before = peer_.packets(), kernel_before = peer_.kernel_packets();
  if (job.warmups > 0) {
    peer_.run(job.warmups);
    peer_.barrier();
  }
  const double cpu = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  peer_.run(job.iterations);
  reply.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  reply.cpu_seconds = cpu_seconds() - cpu;
  peer_.barrier();

  const LossCounts after = peer_.losses();
  reply.losses = {.due = after.due - before.due, .missing = after.missing - before.missing};
  reply.packets = grown(packets_before, peer_.packets());
  reply.kernel = grown(kernel_before, peer_.kernel_packets());
  reply.network = network_;
  reply.fell_back = peer_.fell_back();
  reply.wrong = count_wrong_output(job, peer_.rank(), peer_.world(), output);
  reply.error = error_of_output(job, peer_.world(), output);
  return reply;
}

namespace {

// A coordinator that has heard it from another rank, or was ended, has left.
void tell(Lines& coordinator, const Error& problem) {
  try {
    coordinator.write(failure_line(problem));
  } catch (const Error&) {
  }
}

}  // namespace

int serve(Peer& peer, Lines coordinator) {
  coordinator.write(fmt::format("hello {} {} {}", peer.rank(), peer.world(), one_line(peer.description())));
  Measurer measurer(peer);
  while (const auto line = coordinator.read()) {
    try {
      coordinator.write(to_line(measurer.measure(job_from_line(*line))));
    } catch (const Error& problem) {
      tell(coordinator, problem);
      return 1;
    } catch (const std::exception& problem) {
      tell(coordinator, Error(ErrorKind::internal, problem.what()));
      return 1;
    }
  }
  return 0;
}

void pin_to_core(Rank local_rank) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  int left = local_rank % CPU_COUNT(&usable);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

}  // namespace ranvier::bench

// How near an all_reduce of large vectors between two ranks of a host comes to what its memory allows. No all_reduce in
// place can do with less than to read both vectors once and to write both once: the limit is the time of two processes
// that do just this, each with one half of two vectors in shared memory. Beside it, sample by sample in turn, ranvier's
// all_reduce in any memory and in memory that it lends. Ranks write their vectors before each sample, as training does.
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/kernel.h"
#include "ranvier/store.h"
#include "ranvier/text.h"

namespace {

using namespace ranvier;
using std::chrono::steady_clock;

constexpr auto usage = "usage: memory_limit [--samples 15] [16M 64M 256M …]";

struct Plan {
  int samples = 15;
  std::vector<std::size_t> sizes = {};  // bytes of a vector
};

// None where the words are wrong.
std::optional<Plan> parse(std::span<char* const> words) {
  Plan plan;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (std::string_view(words[i]) == "--samples") {
      const auto samples = ++i < words.size() ? parse_number<int>(words[i]) : std::nullopt;
      if (!samples || *samples < 1) return std::nullopt;
      plan.samples = *samples;
      continue;
    }
    const auto bytes = parse_bytes(words[i]);
    if (!bytes || *bytes < 2 * sizeof(float)) return std::nullopt;
    plan.sizes.push_back(*bytes / (2 * sizeof(float)) * (2 * sizeof(float)));
  }
  if (plan.sizes.empty()) plan.sizes = {16 << 20, 64 << 20, 256 << 20};
  return plan;
}

void pin(Rank rank) {
  cpu_set_t allowed;
  cpu_set_t own;
  CPU_ZERO(&own);
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int core = 0, place = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed) && place++ == rank) CPU_SET(core, &own);
  if (CPU_COUNT(&own) == 0 || sched_setaffinity(0, sizeof own, &own) != 0)
    throw std::runtime_error("each of the two ranks needs a core of its own, and this process may use one only");
}

// Vectors of both ranks that both can reach: made before they part.
class Common {
 public:
  explicit Common(std::size_t bytes) : bytes_(2 * bytes), memory_(map(bytes_)) {}
  ~Common() { munmap(memory_, bytes_); }
  Common(const Common&) = delete;
  Common& operator=(const Common&) = delete;

  float* of(Rank rank, std::size_t count) const {
    return static_cast<float*>(memory_) + static_cast<std::size_t>(rank) * count;
  }

 private:
  static void* map(std::size_t bytes) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error(fmt::format("no {} bytes of shared memory", bytes));
    return memory;
  }

  const std::size_t bytes_;
  void* const memory_;
};

// The sum of one half, and a copy of it while it is in the nearest cache.
void sum_into_both(float* one, float* other, std::size_t count) {
  constexpr std::size_t block = 1024;
  const auto add = kernel::reduce_function(ReduceOp::sum, DType::f32);
  for (std::size_t i = 0; i < count; i += block) {
    const std::size_t some = std::min(block, count - i);
    add(one + i, one + i, other + i, some, 0);
    std::memcpy(other + i, one + i, some * sizeof(float));
  }
}

// Of the slower rank.
double seconds(Communicator& comm, const std::function<void()>& body) {
  comm.barrier();
  const auto start = steady_clock::now();
  body();
  std::array taken{std::chrono::duration<double>(steady_clock::now() - start).count()};
  comm.all_reduce(std::span(taken), {.op = ReduceOp::max});
  return taken[0];
}

struct Samples {
  std::vector<double> limit = {}, any = {}, lent = {};
};

Samples measure(Communicator& comm, const Common& common, std::size_t bytes, int samples) {
  const std::size_t count = bytes / sizeof(float);
  const std::size_t half = count / 2;
  const std::size_t begin = static_cast<std::size_t>(comm.rank()) * half;
  std::vector<float> any(count);
  const auto memory = comm.allocate(bytes);
  const std::span lent(static_cast<float*>(static_cast<void*>(memory.get())), count);
  const std::span own(common.of(comm.rank(), count), count);
  const auto sample = [&](std::span<float> vector, const std::function<void()>& body) {
    std::ranges::fill(vector, static_cast<float>(1 + comm.rank()));
    const double taken = seconds(comm, body);
    if (!std::ranges::all_of(vector, [](float each) { return each == 3; })) throw std::runtime_error("a wrong sum");
    return taken;
  };
  Samples result;
  for (int i = -1; i < samples; ++i) {  // the first one touches all memory, and counts for nothing
    const double limit = sample(own, [&] {
      sum_into_both(common.of(comm.rank(), count) + begin, common.of(1 - comm.rank(), count) + begin, half);
    });
    const double in_any = sample(any, [&] { comm.all_reduce(std::span(any)); });
    const double in_lent = sample(lent, [&] { comm.all_reduce(lent); });
    if (i < 0) continue;
    result.limit.push_back(limit);
    result.any.push_back(in_any);
    result.lent.push_back(in_lent);
  }
  return result;
}

// The least value that a share of them do not exceed.
double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

std::string milliseconds(const std::vector<double>& values) {
  return fmt::format("{:.2f}", quantile(values, 0.5) * 1e3);
}

std::string share(const std::vector<double>& limit, const std::vector<double>& taken) {
  std::vector<double> shares(limit.size());
  std::ranges::transform(limit, taken, shares.begin(), [](double least, double own) { return 100 * least / own; });
  return fmt::format("{:.0f} % ({:.0f} to {:.0f})", quantile(shares, 0.5), quantile(shares, 0.25),
                     quantile(shares, 0.75));
}

void print(std::size_t bytes, const Samples& samples) {
  fmt::print("| {} | {} | {:.1f} | {} | {} | {} | {} |\n", human_bytes(static_cast<double>(bytes)),
             milliseconds(samples.limit), static_cast<double>(bytes) / quantile(samples.limit, 0.5) / 1e9,
             milliseconds(samples.any), share(samples.limit, samples.any), milliseconds(samples.lent),
             share(samples.limit, samples.lent));
  std::fflush(stdout);
}

int run(const Plan& plan, const Common& common, const std::string& meeting_place, Rank rank) {
  try {
    pin(rank);
    const auto store = file_store(meeting_place);
    CommunicatorOptions options;
    options.transport = "shm";
    options.timeout = options.join_timeout = std::chrono::minutes(1);
    const auto comm = Communicator::connect(*store, rank, 2, options);
    if (rank == 0) {
      fmt::print("| bytes | limit, ms | GB/s | ranvier, ms | of the limit | lent, ms | of the limit |\n");
      fmt::print("| --- | --- | --- | --- | --- | --- | --- |\n");
    }
    for (const std::size_t bytes : plan.sizes) {
      const Samples samples = measure(*comm, common, bytes, plan.samples);
      if (rank == 0) print(bytes, samples);
    }
    comm->leave();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "memory_limit: rank {}: {}\n", rank, error.what());
    return 1;
  }
}

}  // namespace

int main(int count, char** arguments) {
  const auto plan = parse({arguments + 1, static_cast<std::size_t>(count - 1)});
  if (!plan) {
    fmt::print(stderr, "{}\n", usage);
    return 2;
  }
  std::string meeting_place = (std::filesystem::temp_directory_path() / "memory_limit_XXXXXX").string();
  if (mkdtemp(meeting_place.data()) == nullptr) {
    fmt::print(stderr, "memory_limit: no folder for the ranks to meet in ({})\n", meeting_place);
    return 1;
  }
  int code = 1;
  try {
    const Common common(std::ranges::max(plan->sizes));
    const pid_t child = fork();
    if (child == 0) std::_Exit(run(*plan, common, meeting_place, 1));
    if (child < 0) throw std::runtime_error("the other rank cannot be started");
    code = run(*plan, common, meeting_place, 0);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) code = 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "memory_limit: {}\n", error.what());
  }
  std::filesystem::remove_all(meeting_place);
  return code;
}

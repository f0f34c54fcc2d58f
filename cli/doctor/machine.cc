#include "machine.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/system_files.h"
#include "doctor/check.h"
#include "ranvier/kernel.h"
#include "ranvier/text.h"
#include "ranvier/transport.h"

namespace ranvier::doctor {
namespace {

constexpr std::size_t gibibyte = std::size_t{1} << 30;

Check check_cores() {
  const int online = cli::online_cores();
  const int usable = cli::usable_cores();
  const auto quota = cli::cgroup_cores();
  std::string finding = fmt::format("{} of {} cores usable, {}", usable, online, cli::cpu_model());
  const bool throttled = quota && *quota < usable;
  if (throttled) finding += fmt::format("; the control group allows {:.2g} cores' worth of time", *quota);
  return check("cores", finding, !throttled, Health::warn,
               "raise the container's CPU limit to its cores: a rank that is throttled stalls all others");
}

Check check_load() {
  double load = 0;
  std::istringstream(first_line("/proc/loadavg")) >> load;
  return check("load", fmt::format("{:.2f} processes ran in the last minute", load), load < 0.5 * cli::usable_cores(),
               Health::warn, "stop what else runs here before you believe a benchmark");
}

Check check_memory() {
  const auto available = available_memory_bytes().value_or(0);
  return check("memory",
               fmt::format("{} available of {}", human_bytes(static_cast<double>(available)),
                           human_bytes(static_cast<double>(cli::memory_bytes()))),
               available >= gibibyte, Health::warn, "free some: 4 workers with a small model take about 1 GiB");
}

Check check_instruction_set() {
  const std::string name = kernel::instruction_set();
  const bool vectors = name != "SCALAR" && name != "EMU128";
  return check("instruction set", name, vectors, Health::warn,
               "this processor's vectors are not used, reductions are slow: build with a newer Highway (libhwy-dev)");
}

// A rank opens one socket for each peer and lane.
Check check_open_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kept_free = 64;
  const rlim_t ranks = limit.rlim_cur > kept_free ? (limit.rlim_cur - kept_free) / lane_count : 0;
  return check("open files", fmt::format("{} allowed: enough for tcp with {} ranks", limit.rlim_cur, ranks),
               ranks >= 64, Health::warn, "allow more with 'ulimit -n 65536' where the ranks are started");
}

Check check_proc() {
  std::error_code problem;
  const bool works = std::filesystem::exists("/proc/self/fd/", problem) && !first_line("/proc/self/status").empty();
  return check("/proc", works ? "readable: ranks find each other's shared memory through it" : "not there", works,
               Health::fail, "mount it (mount -t proc proc /proc); without it only tcp works");
}

Check check_congestion_control() {
  const std::string now = cli::congestion_control();
  std::istringstream allowed(first_line("/proc/sys/net/ipv4/tcp_allowed_congestion_control"));
  bool reno = false;
  for (std::string name; allowed >> name;) reno = reno || name == "reno";
  return check("congestion control",
               fmt::format("{} by default; on loopback ranvier takes reno{}", now,
                           now == "bbr" ? ", between hosts on round trips of up to 2 ms, too" : ""),
               reno, Health::warn,
               "allow reno (sysctl net.ipv4.tcp_allowed_congestion_control): bbr halves the speed of loopback");
}

Check check_socket_buffers() {
  std::size_t send = 0, receive = 0;
  std::istringstream(first_line("/proc/sys/net/core/wmem_max")) >> send;
  std::istringstream(first_line("/proc/sys/net/core/rmem_max")) >> receive;
  constexpr std::size_t wished = std::size_t{4} << 20;
  return check("socket buffers",
               fmt::format("up to {} to send, {} to receive", human_bytes(static_cast<double>(send)),
                           human_bytes(static_cast<double>(receive))),
               send >= wished && receive >= wished, Health::warn,
               "raise net.core.wmem_max and net.core.rmem_max to 8388608: large messages over tcp run faster (as root "
               "ranvier does without)");
}

}  // namespace

std::vector<Check> check_machine() {
  return {check_cores(),
          check_load(),
          check_memory(),
          check_instruction_set(),
          check_proc(),
          check_open_files(),
          check_congestion_control(),
          check_socket_buffers()};
}

}  // namespace ranvier::doctor

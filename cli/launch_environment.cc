// Which worker of which job this process is, as whoever started it has left word in the environment.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "launch.h"
#include "ranvier/error.h"
#include "ranvier/text.h"
#include "temporary.h"

namespace ranvier::cli {
namespace {

namespace fs = std::filesystem;

class Environment {
 public:
  explicit Environment(const Lookup& lookup) : lookup_(lookup) {}

  // Set to nothing is not set: scripts clear variables so.
  bool has(const char* name) const { return !text(name).empty(); }
  std::string text(const char* name) const {
    const char* value = lookup_(name);
    return value == nullptr ? "" : value;
  }

  std::string first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (has(name)) return text(name);
    return "";
  }

  // The number in `name`, which `launcher` should have set.
  int number(const char* name, std::string_view launcher, int least, int most) const {
    const char* value = lookup_(name);
    if (value == nullptr)
      throw Error(ErrorKind::config, fmt::format("the environment looks like {}'s but {} is not set; set it, or unset "
                                                 "the rest of {}'s variables",
                                                 launcher, name, launcher));
    const std::string_view word = value;
    const auto number = parse_number<int>(word);
    if (!number || *number < least || *number > most)
      throw Error(ErrorKind::config, fmt::format("{}='{}' in the environment is not a number from {} to {}; correct or "
                                                 "unset {}'s variables",
                                                 name, word, least, most, launcher));
    return *number;
  }

 private:
  const Lookup& lookup_;
};

constexpr int most_ranks = 1 << 20;
constexpr int most_restarts = std::numeric_limits<int>::max();

struct Names {
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;
};

WorldPlace read_place(const Environment& environment, const char* launcher, const Names& names) {
  WorldPlace place;
  place.launcher = launcher;
  place.world = environment.number(names.world, launcher, 1, most_ranks);
  place.rank = environment.number(names.rank, launcher, 0, place.world - 1);
  // Only some say how many of the ranks share a host; alone on one is the guess that claims nothing.
  if (names.local_world != nullptr && environment.has(names.local_world)) {
    place.local_world = environment.number(names.local_world, launcher, 1, place.world);
    place.local_rank = environment.number(names.local_rank, launcher, 0, place.local_world - 1);
  }
  return place;
}

void read_master(const Environment& environment, WorldPlace& place) {
  place.master_address = environment.text("MASTER_ADDR");
  place.master_port = static_cast<std::uint16_t>(environment.number("MASTER_PORT", place.launcher, 1, 65535));
}

// Where a job meets that brings no TCPStore: a place of the user's choice, or a directory on the only host there is
// (empty where there are several).
void choose_meeting_place(const Environment& environment, WorldPlace& place, const fs::path& on_one_host,
                          bool owns_store) {
  if (environment.has("RANVIER_STORE")) {
    place.store = environment.text("RANVIER_STORE");
  } else if (environment.has("MASTER_ADDR")) {
    read_master(environment, place);
  } else if (place.local_world == place.world && !on_one_host.empty()) {
    place.store = on_one_host;
    place.owns_store = owns_store;
  } else {
    throw Error(ErrorKind::config,
                fmt::format("nothing says where the ranks that {} started meet; set MASTER_ADDR and MASTER_PORT, or "
                            "RANVIER_STORE to a directory that all hosts see",
                            place.launcher));
  }
}

WorldPlace from_ranvier(const Environment& environment) {
  auto place = read_place(environment, "ranvier",
                          {"RANVIER_RANK", "RANVIER_WORLD", "RANVIER_LOCAL_RANK", "RANVIER_LOCAL_WORLD"});
  choose_meeting_place(environment, place, {}, false);
  if (environment.has("RANVIER_RESTART"))
    place.restart = environment.number("RANVIER_RESTART", place.launcher, 0, most_restarts);
  return place;
}

WorldPlace from_torchrun(const Environment& environment) {
  auto place = read_place(environment, "torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  if (!environment.has("MASTER_ADDR"))
    throw Error(ErrorKind::config,
                "RANK and WORLD_SIZE are set but MASTER_ADDR is not; start with torchrun, or set "
                "MASTER_ADDR and MASTER_PORT");
  read_master(environment, place);
  place.master_runs_elsewhere = environment.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.attempt = environment.text("TORCHELASTIC_RUN_ID") + "/" + environment.text("TORCHELASTIC_RESTART_COUNT");
  return place;
}

WorldPlace from_open_mpi(const Environment& environment) {
  auto place = read_place(
      environment, "mpirun",
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  // mpirun keeps a directory for each job (named so by Open MPI 5 and 4) and removes it with all that is in it.
  const auto job = environment.first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  const auto session = environment.first_of({"PMIX_SERVER_TMPDIR", "OMPI_MCA_orte_jobfam_session_dir"});
  if (job.empty() || session.empty())
    choose_meeting_place(environment, place, {}, false);
  else
    choose_meeting_place(environment, place, fs::path(session) / ("ranvier-" + job), false);
  return place;
}

WorldPlace from_slurm(const Environment& environment) {
  auto place = read_place(environment, "srun", {"SLURM_PROCID", "SLURM_NTASKS", nullptr, nullptr});
  const int hosts = environment.number("SLURM_NNODES", place.launcher, 1, place.world);
  place.local_world = (place.world + hosts - 1) / hosts;  // Slurm's own count is a list; this is its mean
  place.local_rank = environment.number("SLURM_LOCALID", place.launcher, 0, place.world - 1);
  place.local_world = std::max(place.local_world, place.local_rank + 1);
  const auto job = fmt::format("ranvier-{}-slurm-{}-{}", getuid(), environment.text("SLURM_JOB_ID"),
                               environment.text("SLURM_STEP_ID"));
  choose_meeting_place(environment, place, hosts == 1 ? temporary_folder() / job : fs::path(), true);
  return place;
}

std::optional<WorldPlace> place_from(const Environment& environment) {
  if (environment.has("RANVIER_RANK") || environment.has("RANVIER_WORLD")) return from_ranvier(environment);
  if (environment.has("RANK") || environment.has("WORLD_SIZE")) return from_torchrun(environment);
  if (environment.has("OMPI_COMM_WORLD_RANK")) return from_open_mpi(environment);
  // A batch script has SLURM_PROCID too; only what srun starts is in a step.
  if (environment.has("SLURM_PROCID") && environment.has("SLURM_STEP_ID")) return from_slurm(environment);
  return std::nullopt;
}

}  // namespace

std::optional<WorldPlace> world_from_environment(const Lookup& lookup) {
  const Lookup process = [](const char* name) -> const char* { return std::getenv(name); };
  const Environment environment(lookup ? lookup : process);
  auto place = place_from(environment);
  if (place && environment.has("RANVIER_NODE")) place->node = environment.text("RANVIER_NODE");
  return place;
}

}  // namespace ranvier::cli

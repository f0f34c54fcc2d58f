#include "integrations/trainer/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <optional>
#include <string>

#include "integrations/trainer/division.h"
#include "integrations/trainer/model_team.h"
#include "integrations/trainer/run.h"
#include "integrations/trainer/run_settings.h"
#include "ranvier/error.h"

namespace ranvier::trainer {

TrainResult train(const TrainSettings& settings, const Dataset& data, Communicator& comm, const TrainEvents& events,
                  Kept* kept) {
  if (settings.threads > 0) at::set_num_threads(settings.threads);
  at::manual_seed(settings.seed);
  // Both outlive a failure: groups are told why before they are left, and what is under way into the run's memory ends.
  std::optional<ModelTeam> team;
  std::optional<Run> run;
  const auto abort = [&](const std::string& reason) { team ? team->abort(reason) : comm.abort(reason); };
  try {
    require_equal_terms(comm, terms_of(settings, data, comm.world()));  // before anything that follows from them
    team.emplace(comm, parse_division(settings.parallel));
    return run.emplace(settings, data, *team, kept).run(events);
  } catch (const c10::Error& problem) {
    abort("rank " + std::to_string(comm.rank()) + " failed in torch");
    throw Error(ErrorKind::internal, std::string("torch failed: ") + problem.what_without_backtrace());
  } catch (const Error& problem) {
    const Error known = team ? team->in_words_of_all(problem) : problem;
    abort(known.what());  // no news to the others if it came from them
    throw known;
  } catch (const std::exception& problem) {
    abort(problem.what());
    throw;
  }
}

}  // namespace ranvier::trainer

#include "launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "ranvier/error.h"
#include "support/refusal.h"
#include "support/temporary_folder.h"

namespace ranvier::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

// A folder for what workers of a test leave, and for the temporary files of run_workers.
class Folder {
 public:
  Folder() {
    fs::create_directory(path() / "tmp");
    setenv("TMPDIR", (path() / "tmp").c_str(), 1);
  }
  ~Folder() { unsetenv("TMPDIR"); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string text(const std::string& name) const {
    std::ifstream file(path() / name);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  bool nothing_left_behind() const { return fs::is_empty(path() / "tmp"); }
  const fs::path& path() const { return folder_.path(); }

 private:
  support::TemporaryFolder folder_;
};

// Workers that run `script`, with the folder in $FOLDER.
Launch shell(int count, const std::string& script, const Folder& folder) {
  return {.count = count,
          .command = {"/bin/sh", "-c", script},
          .environment = {{"FOLDER", folder.path().string()}},
          .grace = 300ms};
}

TEST(Launch, EveryWorkerFindsItsPlaceAndTheCommonStore) {
  const Folder folder;
  const std::string script =
      "test -d $RANVIER_STORE || exit 1; "
      "echo $RANVIER_WORLD $RANVIER_LOCAL_RANK $RANVIER_LOCAL_WORLD $RANVIER_STORE > $FOLDER/$RANVIER_RANK";
  EXPECT_EQ(run_workers(shell(3, script, folder)), 0);
  std::set<std::string> stores;
  for (int rank = 0; rank < 3; ++rank) {
    std::istringstream words(folder.text(std::to_string(rank)));
    int world = 0, local_rank = -1, local_world = 0;
    std::string store;
    words >> world >> local_rank >> local_world >> store;
    EXPECT_EQ(world, 3);
    EXPECT_EQ(local_rank, rank);
    EXPECT_EQ(local_world, 3);
    stores.insert(store);
  }
  EXPECT_EQ(stores.size(), 1U);
  EXPECT_TRUE(folder.nothing_left_behind());
}

TEST(Launch, AWorkersEnvironmentReplacesWhatWasThere) {
  const Folder folder;
  setenv("RANVIER_RANK", "17", 1);
  EXPECT_EQ(run_workers(shell(1, "env | grep -c '^RANVIER_RANK=' > $FOLDER/count; test $RANVIER_RANK = 0", folder)), 0);
  unsetenv("RANVIER_RANK");
  EXPECT_EQ(folder.text("count"), "1\n");
}

TEST(Launch, WorkersThatAreForkedFindTheirPlaceAsThoseOfAProgramDo) {
  const Folder folder;
  Launch launch = shell(3, "exit 9", folder);
  launch.work = [&folder] {
    const auto place = world_from_environment().value();
    std::ifstream name("/proc/self/comm");
    std::ofstream file(folder.path() / std::to_string(place.rank));
    file << name.rdbuf() << place.world << " " << place.store.string() << " " << std::getenv("FOLDER");
    return 0;
  };
  EXPECT_EQ(run_workers(launch), 0);
  std::set<std::string> rests;
  for (int rank = 0; rank < 3; ++rank) {
    std::istringstream text(folder.text(std::to_string(rank)));
    std::string name, rest;
    std::getline(text, name);
    std::getline(text, rest);
    EXPECT_EQ(name, "ranvier #" + std::to_string(rank));
    EXPECT_THAT(rest, testing::StartsWith("3 " + (folder.path() / "tmp").string()));
    EXPECT_THAT(rest, testing::EndsWith(" " + folder.path().string()));
    rests.insert(rest);
  }
  EXPECT_EQ(rests.size(), 1U);
  EXPECT_EQ(std::getenv("RANVIER_RANK"), nullptr);
  EXPECT_TRUE(folder.nothing_left_behind());
}

TEST(Launch, AForkedWorkersResultIsItsExitCode) {
  const Folder folder;
  Launch launch = shell(2, "exit 9", folder);
  launch.work = [] { return world_from_environment().value().rank == 1 ? 7 : 0; };
  EXPECT_EQ(run_workers(launch), 7);
}

TEST(Launch, TheFirstFailureGivesTheExitCode) {
  const Folder folder;
  EXPECT_EQ(run_workers(shell(3,
                              "test $RANVIER_RANK = 1 && exit 7; "
                              "until grep -qs 'it has ended with exit code 7' -r $RANVIER_STORE; do sleep 0.01; done; "
                              "exit 9",
                              folder)),
            7);
  EXPECT_TRUE(folder.nothing_left_behind());
}

TEST(Launch, AfterAFailureTheOthersAreEnded) {
  const Folder folder;
  EXPECT_EQ(run_workers(shell(3, "test $RANVIER_RANK = 1 && exit 2; exec sleep 1000", folder)), 2);
}

TEST(Launch, AWorkerThatIgnoresTheRequestOrIsStoppedIsKilled) {
  const Folder folder;
  const std::string script =
      "case $RANVIER_RANK in 0) exit 3;; 1) trap '' TERM; while :; do sleep 0.05; done;; 2) kill -STOP $$;; esac";
  EXPECT_EQ(run_workers(shell(3, script, folder)), 3);
  EXPECT_TRUE(folder.nothing_left_behind());
}

TEST(Launch, AWorkerHasAsLongToEndAsItsLaunchGivesIt) {
  const Folder folder;
  // A failure that comes before the other worker has set its trap ends that one at once.
  const auto cleaning = [&](int naps) {
    return shell(2,
                 "if test $RANVIER_RANK = 1; then until test -e $FOLDER/waits; do sleep 0.01; done; exit 3; fi; "
                 "trap 'for i in $(seq " +
                     std::to_string(naps) +
                     "); do sleep 0.05; done; touch $FOLDER/cleaned; exit 1' TERM; "
                     "touch $FOLDER/waits; while :; do sleep 0.05; done",
                 folder);
  };
  Launch launch = cleaning(10);
  launch.term_to_kill = 30s;
  EXPECT_EQ(run_workers(launch), 3);
  EXPECT_TRUE(fs::exists(folder.path() / "cleaned"));
  fs::remove(folder.path() / "cleaned");
  fs::remove(folder.path() / "waits");
  launch = cleaning(200);
  launch.term_to_kill = 100ms;
  EXPECT_EQ(run_workers(launch), 3);
  EXPECT_FALSE(fs::exists(folder.path() / "cleaned"));
}

TEST(Launch, AWorkerEndedByASignalIsAFailureThatIsReported) {
  const Folder folder;
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_workers(shell(2, "test $RANVIER_RANK = 1 && kill -KILL $$; sleep 0.1", folder)), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("worker 1"));
}

// Those that survive others, and have all come: arrivals are files of the store.
Launch surviving(int count, int restarts, const std::string& script, const Folder& folder) {
  Launch launch = shell(
      count, "touch $RANVIER_STORE/come%2F$RANVIER_RANK; echo $RANVIER_RESTART >> $FOLDER/$RANVIER_RANK; " + script,
      folder);
  launch.survive = true;
  launch.restarts = restarts;
  return launch;
}

const std::string all_have_come =
    "until test -e $RANVIER_STORE/come%2F0 -a -e $RANVIER_STORE/come%2F1; do sleep 0.01; done; ";

TEST(Launch, AWorkerThatOthersSurviveIsStartedAgainSoOften) {
  const Folder folder;
  const std::string script = all_have_come +
                             "test $RANVIER_RANK = 1 && exit 7; "
                             "until test $(wc -l < $FOLDER/1) = 3; do sleep 0.01; done; sleep 0.3; "
                             "touch $RANVIER_STORE/result";
  EXPECT_EQ(run_workers(surviving(2, 2, script, folder)), 0);
  EXPECT_EQ(folder.text("0"), "0\n");
  EXPECT_EQ(folder.text("1"), "0\n1\n2\n");
  EXPECT_TRUE(folder.nothing_left_behind());
}

TEST(Launch, InThePlaceOfAForkedWorkerTheProgramIsStarted) {
  const Folder folder;
  Launch launch = surviving(2, 1, "touch $RANVIER_STORE/result", folder);
  launch.work = [] {
    const auto place = world_from_environment().value();
    std::ofstream(place.store / ("come%2F" + std::to_string(place.rank))) << "here";
    const auto is_there = [&](const char* name) { return fs::exists(place.store / name); };
    while (!is_there("come%2F0") || !is_there("come%2F1")) std::this_thread::sleep_for(5ms);
    if (place.rank == 1) return 7;
    while (!is_there("result")) std::this_thread::sleep_for(5ms);
    return 0;
  };
  EXPECT_EQ(run_workers(launch), 0);
  EXPECT_EQ(folder.text("0"), "");
  EXPECT_EQ(folder.text("1"), "1\n");
  EXPECT_TRUE(folder.nothing_left_behind());
}

TEST(Launch, WhereNobodyIsLeftOrAllIsDoneNoneIsStartedAgain) {
  const Folder folder;
  EXPECT_EQ(run_workers(surviving(1, 2, "kill -KILL $$", folder)), 1);
  EXPECT_EQ(folder.text("0"), "0\n");
  const std::string script = all_have_come +
                             "test $RANVIER_RANK = 0 && touch $RANVIER_STORE/result; "
                             "until test -e $RANVIER_STORE/result; do sleep 0.01; done; "
                             "test $RANVIER_RANK = 1 && exit 7; sleep 0.3";
  const Folder another;
  EXPECT_EQ(run_workers(surviving(2, 2, script, another)), 0);
  EXPECT_EQ(another.text("1"), "0\n");
}

TEST(Launch, WhoFailsBeforeAllHaveComeIsNotStartedAgain) {
  const Folder folder;
  const std::string script = "test $RANVIER_RANK = 1 && rm $RANVIER_STORE/come%2F1 && exit 7; exec sleep 1000";
  EXPECT_EQ(run_workers(surviving(2, 2, script, folder)), 7);
  EXPECT_EQ(folder.text("1"), "0\n");
}

// As ranks read it that have not met, in the place of what that worker would have told them. Who exits when another is
// lost has heard of it: whoever reads of that one first is told of the other as well.
TEST(Launch, ThoseWhoWaitForAWorkerThatHasEndedAreTold) {
  for (const auto& [ends, told] :
       {std::pair{"kill -KILL $$", "was ended by signal 9"}, std::pair{"exit 5", "has ended with exit code 5"}}) {
    const Folder folder;
    const auto wait_for = [](const std::string& text) {
      return "until grep -qs '" + text + "' -r $RANVIER_STORE; do sleep 0.01; done; ";
    };
    const std::string script = "case $RANVIER_RANK in 0) " + std::string(ends) + ";; 1) " +
                               wait_for(std::string("it ") + told) + "exit 1;; esac; " +
                               wait_for(std::string("it has ended as well: rank 0 ") + told) + "echo > $FOLDER/told";
    Launch launch = shell(3, script, folder);
    launch.grace = 30s;
    EXPECT_NE(run_workers(launch), 0);
    EXPECT_TRUE(fs::exists(folder.path() / "told")) << ends;
    EXPECT_TRUE(folder.nothing_left_behind());
  }
}

TEST(Launch, ThoseWhoDoNotNoticeThatOneIsLostAreEndedSoon) {
  const Folder folder;
  Launch launch = shell(3,
                        "case $RANVIER_RANK in 0) exec sleep 60;; "
                        "1) until test -e $FOLDER/here; do sleep 0.01; done; kill -9 $$;; "
                        "2) : > $RANVIER_STORE/come%2F2; touch $FOLDER/here; exec sleep 60;; esac",
                        folder);
  launch.grace = 30s;
  launch.time_to_notice = 200ms;
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_workers(launch), 1);
  const std::string said = testing::internal::GetCapturedStderr();
  for (const char* rank : {"0", "2"})  // whether it has come to the meeting or not
    EXPECT_THAT(said, testing::ContainsRegex(std::string("worker ") + rank +
                                             " \\(process [0-9]+\\) is ended: rank 1 was ended by signal 9"));
  EXPECT_TRUE(folder.nothing_left_behind());
}

TEST(Launch, WhoNoticesThatOneIsLostEndsByItself) {
  const Folder folder;
  Launch launch = shell(2,
                        "test $RANVIER_RANK = 1 && kill -9 $$; "
                        "until grep -qs 'it was ended by signal 9' -r $RANVIER_STORE; do sleep 0.01; done; "
                        "touch $FOLDER/noticed; exit 1",
                        folder);
  launch.grace = launch.time_to_notice.emplace(30s);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_workers(launch), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("worker 0")));
  EXPECT_TRUE(fs::exists(folder.path() / "noticed"));
}

TEST(Launch, ASignalIsPassedOnAndEndsTheJob) {
  const Folder folder;
  // Each worker writes what it was told, so that a mere death would not do.
  const std::string script =
      "trap 'echo told > $FOLDER/$RANVIER_RANK; exit 0' TERM; echo > $FOLDER/ready-$RANVIER_RANK; "
      "while :; do sleep 0.02; done";
  // Blocked before the thread starts, so that it inherits that and the signal is left to run_workers.
  sigset_t term, before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, &before);
  std::thread killer([&] {
    while (!fs::exists(folder.path() / "ready-0") || !fs::exists(folder.path() / "ready-1"))
      std::this_thread::sleep_for(5ms);
    kill(getpid(), SIGTERM);
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const int code = run_workers(shell(2, script, folder));
  killer.join();
  EXPECT_EQ(code, 128 + SIGTERM);
  EXPECT_EQ(folder.text("0"), "told\n");
  EXPECT_EQ(folder.text("1"), "told\n");
}

TEST(Launch, AProgramThatIsNotThereIsNamed) {
  try {
    run_workers({.count = 1, .command = {"/nowhere/ranvier-train"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/ranvier-train"));
  }
}

// ---- The environment.

using Variables = std::map<std::string, std::string>;

std::optional<WorldPlace> place_in(const Variables& variables) {
  return world_from_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string sentence_for(const Variables& variables) {
  return support::refusal([&] { place_in(variables); }, ErrorKind::config);
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

const Variables ours{{"RANVIER_RANK", "1"}, {"RANVIER_WORLD", "4"}, {"RANVIER_STORE", "/shared/job"}};
const Variables torchrun{{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "node0"},
                         {"MASTER_PORT", "29400"},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                         {"TORCHELASTIC_RUN_ID", "job"},
                         {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Variables mpirun{{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                       {"OMPI_MCA_ess_base_jobid", "77"},   {"OMPI_MCA_orte_jobfam_session_dir", "/tmp/ompi/pid.1"}};
const Variables srun{{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"},  {"SLURM_LOCALID", "3"},
                     {"SLURM_NNODES", "1"}, {"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}};

TEST(WorldFromEnvironment, ANodeIsNamedWhoeverHasStartedTheRank) {
  for (const Variables& started : {ours, torchrun}) {
    EXPECT_EQ(place_in(started).value().node, "");
    EXPECT_EQ(place_in(with(started, "RANVIER_NODE", "left")).value().node, "left");
  }
  EXPECT_EQ(place_in({{"RANVIER_NODE", "left"}}), std::nullopt);
}

TEST(WorldFromEnvironment, AProcessAloneHasNoPlace) { EXPECT_FALSE(place_in({{"PATH", "/bin"}}).has_value()); }

TEST(WorldFromEnvironment, OurOwn) {
  const auto place = place_in(ours);
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->world, 4);
  EXPECT_EQ(place->store, "/shared/job");
  EXPECT_FALSE(place->owns_store);
}

TEST(WorldFromEnvironment, Torchrun) {
  const auto place = place_in(torchrun);
  EXPECT_EQ(place->launcher, "torchrun");
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->world, 8);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_world, 4);
  EXPECT_TRUE(place->store.empty());
  EXPECT_EQ(place->master_address, "node0");
  EXPECT_EQ(place->master_port, 29400);
  EXPECT_TRUE(place->master_runs_elsewhere);
  EXPECT_NE(place->attempt, place_in(with(torchrun, "TORCHELASTIC_RESTART_COUNT", "3"))->attempt);
}

TEST(WorldFromEnvironment, OpenMpiMeetsInTheJobsOwnDirectory) {
  const auto place = place_in(mpirun);
  EXPECT_EQ(place->launcher, "mpirun");
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->world, 2);
  EXPECT_EQ(place->store, "/tmp/ompi/pid.1/ranvier-77");
}

TEST(WorldFromEnvironment, OpenMpiOnSeveralHostsNeedsAMeetingPlace) {
  const auto two_hosts = with(with(mpirun, "OMPI_COMM_WORLD_LOCAL_SIZE", "1"), "OMPI_COMM_WORLD_LOCAL_RANK", "0");
  EXPECT_THAT(sentence_for(two_hosts), HasSubstr("RANVIER_STORE"));
  EXPECT_EQ(place_in(with(two_hosts, "RANVIER_STORE", "/nfs"))->store, "/nfs");
  EXPECT_EQ(place_in(with(with(two_hosts, "MASTER_ADDR", "node0"), "MASTER_PORT", "1"))->master_address, "node0");
}

TEST(WorldFromEnvironment, Slurm) {
  const auto place = place_in(srun);
  EXPECT_EQ(place->launcher, "srun");
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->local_world, 4);
  EXPECT_TRUE(place->owns_store);
  EXPECT_NE(place->store, place_in(with(srun, "SLURM_STEP_ID", "1"))->store);
}

TEST(WorldFromEnvironment, ABatchScriptIsNoRankOfItsJob) {
  EXPECT_FALSE(place_in(without(srun, "SLURM_STEP_ID")).has_value());
}

TEST(WorldFromEnvironment, OursComesBeforeTheOthers) {
  auto both = mpirun;
  both.insert(ours.begin(), ours.end());
  EXPECT_EQ(place_in(both)->world, 4);
}

TEST(WorldFromEnvironment, AHalfSetEnvironmentNamesWhatIsMissing) {
  EXPECT_THAT(sentence_for(without(ours, "RANVIER_RANK")), HasSubstr("RANVIER_RANK"));
  EXPECT_THAT(sentence_for(without(ours, "RANVIER_WORLD")), HasSubstr("RANVIER_WORLD"));
  EXPECT_THAT(sentence_for(without(ours, "RANVIER_STORE")), HasSubstr("RANVIER_STORE"));
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    EXPECT_THAT(sentence_for(without(torchrun, name)), HasSubstr(name));
  EXPECT_THAT(sentence_for(without(mpirun, "OMPI_COMM_WORLD_SIZE")), HasSubstr("OMPI_COMM_WORLD_SIZE"));
  EXPECT_THAT(sentence_for(without(srun, "SLURM_NTASKS")), HasSubstr("SLURM_NTASKS"));
}

TEST(WorldFromEnvironment, AVariableSetToNothingIsNotSet) {
  const Variables alone{{"RANVIER_RANK", "0"}, {"RANVIER_WORLD", "1"}};
  for (const char* place : {"RANVIER_STORE", "MASTER_ADDR"})
    EXPECT_THAT(sentence_for(with(alone, place, "")), HasSubstr("nothing says where the ranks")) << place;
  EXPECT_THAT(sentence_for(with(torchrun, "MASTER_ADDR", "")), HasSubstr("MASTER_ADDR is not"));
  EXPECT_FALSE(place_in({{"RANVIER_RANK", ""}, {"RANVIER_WORLD", ""}}).has_value());
}

TEST(WorldFromEnvironment, AWorkerKnowsWhetherItHasComeForAnother) {
  EXPECT_EQ(place_in(ours)->restart, 0);
  EXPECT_EQ(place_in(with(ours, "RANVIER_RESTART", "2"))->restart, 2);
}

TEST(WorldFromEnvironment, NumbersThatCannotBeAreRefused) {
  EXPECT_THAT(sentence_for(with(ours, "RANVIER_RESTART", "-1")), HasSubstr("RANVIER_RESTART='-1'"));
  EXPECT_THAT(sentence_for(with(ours, "RANVIER_RANK", "4")), HasSubstr("RANVIER_RANK='4'"));
  EXPECT_THAT(sentence_for(with(ours, "RANVIER_RANK", "-1")), HasSubstr("RANVIER_RANK='-1'"));
  EXPECT_THAT(sentence_for(with(ours, "RANVIER_WORLD", "0")), HasSubstr("RANVIER_WORLD='0'"));
  EXPECT_THAT(sentence_for(with(ours, "RANVIER_WORLD", "four")), HasSubstr("RANVIER_WORLD='four'"));
  EXPECT_THAT(sentence_for(with(torchrun, "MASTER_PORT", "99999")), HasSubstr("MASTER_PORT='99999'"));
}

// The last one: its thread may be among those of this process for a moment after it was joined.
TEST(Launch, WhereThereAreSeveralThreadsNoWorkerIsForked) {
  const Folder folder;
  Launch launch = shell(2, "exit 0", folder);
  launch.work = [] { return 9; };
  std::promise<void> end;
  std::thread other([&end] { end.get_future().wait(); });
  EXPECT_EQ(run_workers(launch), 0);
  end.set_value();
  other.join();
}

}  // namespace
}  // namespace ranvier::cli

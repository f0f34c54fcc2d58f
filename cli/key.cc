// ranvier key new: a key that only the ranks of one's own jobs know.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "commands.h"
#include "ranvier/error.h"
#include "ranvier/security.h"
#include "ranvier/text.h"

namespace ranvier::cli {

int run_key(const Arguments& arguments) {
  CLI::App app("Make a key for jobs: ranvier key new > job.key", "ranvier key");
  app.footer(
      "Copy the file to every host and name it to every rank: --key job.key, or RANVIER_KEY=job.key under torchrun.\n"
      "Connections between hosts are encrypted without it too; the key keeps out those who can read the store.\n");
  std::string action;
  app.add_option("ACTION", action, "new: print a new key")->required();
  if (const auto code = parse(app, arguments)) return *code;
  constexpr std::string_view actions[] = {"new"};
  if (action != actions[0]) throw Error(ErrorKind::usage, unknown_name("action", action, actions));

  // The shell made the file for everyone to read.
  struct stat about {};
  if (fstat(STDOUT_FILENO, &about) == 0 && S_ISREG(about.st_mode) && fchmod(STDOUT_FILENO, S_IRUSR | S_IWUSR) != 0)
    throw Error(ErrorKind::config, "the file for the key cannot be kept from others; write it to a local disk");
  fmt::print("{}\n", job_key_text(new_job_key()));
  if (std::fflush(stdout) != 0) throw Error(ErrorKind::config, "the key could not be written; is the disk full?");
  return 0;
}

}  // namespace ranvier::cli

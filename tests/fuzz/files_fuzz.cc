// libFuzzer target: every kind of file that a user may name: plans, workloads, measured networks, traffic, LIBRA's and
// ASTRA-sim's files, Chakra traces and keys. The first byte chooses the reader. Anything but a value or Error{config}
// is a finding, as is a workload or plan that is written and does not come back.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "ranvier/chakra.h"
#include "ranvier/design_files.h"
#include "ranvier/design_search.h"
#include "ranvier/error.h"
#include "ranvier/measured_network.h"
#include "ranvier/plan_file.h"
#include "ranvier/security.h"
#include "ranvier/tuning.h"
#include "ranvier/workload_file.h"

namespace {

using namespace ranvier;

void require(bool held) {
  if (!held) std::abort();
}

// In memory.
class File {
 public:
  explicit File(std::string_view text) : number_(memfd_create("fuzz", MFD_CLOEXEC)) {
    require(number_ >= 0 && write(number_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  ~File() { close(number_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(number_); }

 private:
  int number_;
};

NetworkShape some_network() {
  static const NetworkShape network = parse_network("RI(4)_FC(8)_RI(4)_SW(32)");
  return network;
}

// Which no trace need fit.
void place_on_a_network(const ExecutionTrace& trace) {
  try {
    step_graph(trace, some_network());
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::usage);
  }
}

void read(std::uint8_t which, const std::filesystem::path& file) {
  switch (which % 11) {
    case 0: {
      const std::string text = to_toml(read_plan(file));
      require(to_toml(read_plan(File(text).path())) == text);
      return;
    }
    case 1: {
      const std::string text = to_toml(read_workload(file), "");
      require(to_toml(read_workload(File(text).path()), "") == text);
      return;
    }
    case 2:
      read_measured_network(file);
      return;
    case 3:
      read_traffic(file, 3);
      return;
    case 4:
      // AstraGroups::header differs in refusing, by Error{usage}, what says nothing of groups.
      read_astra_workload(file, which < 128 ? AstraGroups::header_if_any : AstraGroups::elsewhere);
      return;
    case 5:
      read_libra_network(file);
      return;
    case 6:
      read_libra_costs(file);
      return;
    case 7:
      read_libra_communicator(file, some_network());
      return;
    case 8:
      read_chakra_trace(file);
      place_on_a_network(read_chakra_graph(file));
      return;
    case 10:
      read_process_groups(file);
      return;
    default:
      TuningTable::read(file);
      return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const File file({reinterpret_cast<const char*>(data) + 1, size - 1});
  try {
    read(data[0], file.path());
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::config);
  }
  return 0;
}

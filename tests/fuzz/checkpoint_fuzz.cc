// libFuzzer target: a checkpoint, whose checksum is made right, since a hostile file would have the right one. Anything
// but Error{config} or a checkpoint that comes back as it was when it is saved again is a finding.
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "integrations/trainer/checkpoint.h"
#include "ranvier/error.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace ranvier;

void require(bool held) {
  if (!held) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const support::TemporaryFolder folder;  // goes with this process
  static const std::filesystem::path file = folder.path() / "checkpoint";
  const auto sum = static_cast<std::uint32_t>(crc32_z(0, data, size));
  {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    out.write(reinterpret_cast<const char*>(&sum), sizeof sum);
    require(out.good());
  }
  try {
    const trainer::Checkpoint read = trainer::load_checkpoint(file);
    save_checkpoint(file, read);
    const trainer::Checkpoint again = trainer::load_checkpoint(file);
    require(again.identity == read.identity && again.step == read.step && again.tuning == read.tuning &&
            again.parameters.size() == read.parameters.size() && again.momentum.size() == read.momentum.size() &&
            again.rank_state == read.rank_state);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::config);
  }
  return 0;
}

// libFuzzer target: a checkpoint, whose checksum is made right, since a hostile file would have the right one. Anything
// but Error{config} or a checkpoint that comes back as it was when it is saved again is a finding.
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "integrations/trainer/checkpoint.h"
#include "ranvier/error.h"

namespace {

using namespace ranvier;

void require(bool held) {
  if (!held) std::abort();
}

// One of this process, which goes with it.
struct File {
  File() : path(std::filesystem::temp_directory_path() / ("ranvier-fuzz-" + std::to_string(getpid()))) {}
  ~File() { std::filesystem::remove(path); }
  const std::filesystem::path path;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const File file;
  const auto sum = static_cast<std::uint32_t>(crc32_z(0, data, size));
  {
    std::ofstream out(file.path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    out.write(reinterpret_cast<const char*>(&sum), sizeof sum);
    require(out.good());
  }
  try {
    const trainer::Checkpoint read = trainer::load_checkpoint(file.path);
    save_checkpoint(file.path, read);
    const trainer::Checkpoint again = trainer::load_checkpoint(file.path);
    require(again.identity == read.identity && again.step == read.step && again.tuning == read.tuning &&
            again.parameters.size() == read.parameters.size() && again.momentum.size() == read.momentum.size() &&
            again.rank_state == read.rank_state);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::config);
  }
  return 0;
}

// For builds without protobuf.
#include "ranvier/chakra.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path) {
  throw Error(ErrorKind::config, path.string() +
                                     " cannot be read: this build was made without protobuf; install "
                                     "libprotobuf-dev and protobuf-compiler and configure it again");
}

}  // namespace

Workload read_chakra_trace(const std::filesystem::path& path) { refuse(path); }
ExecutionTrace read_chakra_graph(const std::filesystem::path& path) { refuse(path); }

}  // namespace ranvier

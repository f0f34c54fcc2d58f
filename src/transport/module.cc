#include "transport/module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

namespace fs = std::filesystem;

struct Known {
  std::string_view name;
  std::string_view what;
  std::string_view to_build;  // Debian packages
};
constexpr std::array<Known, 3> known{{{"mpi", "transport mpi", "libopenmpi-dev"},
                                      {"ucx", "transport ucx", "libucx-dev"},
                                      {"grpc", "service for guests (--serve)", "libgrpc++-dev"}}};

// The folder of the program or library that this code is linked into.
fs::path own_folder() {
  Dl_info info{};
  std::error_code unreadable;
  if (dladdr(module_symbol, &info) != 0 && info.dli_fname != nullptr && std::strchr(info.dli_fname, '/') != nullptr)
    if (const fs::path file = fs::canonical(info.dli_fname, unreadable); !unreadable) return file.parent_path();
  return {};
}

// Beside the program (a build tree, and the programs of the Python package), in bin/ beside the package's library, and
// where `cmake --install` puts them. RANVIER_MODULES is for programs that stand elsewhere.
std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  if (const char* named = std::getenv("RANVIER_MODULES"); named != nullptr) found.emplace_back(named);
  std::error_code unreadable;
  for (const fs::path& folder : {own_folder(), fs::read_symlink("/proc/self/exe", unreadable).parent_path()}) {
    if (folder.empty()) continue;
    found.push_back(folder);
    found.push_back(folder / "bin");
    found.push_back(folder / ".." / RANVIER_MODULE_FOLDER);
  }
  return found;
}

// What ends a program from outside stays with the program: UCX takes SIGHUP for its debugger as it is loaded.
class KeptSignals {
 public:
  KeptSignals() {
    for (std::size_t i = 0; i < kept.size(); ++i) sigaction(kept[i], nullptr, &before_[i]);
  }
  ~KeptSignals() {
    for (std::size_t i = 0; i < kept.size(); ++i) sigaction(kept[i], &before_[i], nullptr);
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static constexpr std::array kept{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
  std::array<struct sigaction, kept.size()> before_{};
};

const TransportModule& open_module(const Known& module) {
  const std::string file = fmt::format("libranvier_{}.so", module.name);
  for (const fs::path& folder : folders()) {
    const fs::path path = folder / file;
    std::error_code unreadable;
    if (!fs::exists(path, unreadable)) continue;
    const KeptSignals kept;
    // Never closed: what these libraries leave running at exit must find its code.
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr)
      throw Error(ErrorKind::config, fmt::format("the {} cannot be loaded: {}; install what it was built with ({})",
                                                 module.what, dlerror(), module.to_build));
    const auto* found = static_cast<const TransportModule*>(dlsym(library, module_symbol));
    if (found == nullptr || !built_together(*found))
      throw Error(ErrorKind::config, fmt::format("{} belongs to another version of ranvier (this is {}); build them "
                                                 "together",
                                                 path.string(), RANVIER_VERSION));
    return *found;
  }
  throw Error(ErrorKind::config,
              fmt::format("this build has no {}: install {} and build ranvier again, or name the folder of {} "
                          "in RANVIER_MODULES",
                          module.what, module.to_build, file));
}

}  // namespace

bool built_together(const TransportModule& module) {
  return std::string_view(module.version) == RANVIER_VERSION && module.abi == module_abi &&
         module.options_bytes == sizeof(ModuleOptions);
}

const TransportModule& load_module(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string_view, const TransportModule*> loaded;
  const std::lock_guard lock(mutex);
  for (const Known& module : known) {
    if (module.name != name) continue;
    const TransportModule*& place = loaded[module.name];
    if (place == nullptr) place = &open_module(module);
    return *place;
  }
  throw Error(ErrorKind::internal, fmt::format("no module is called {}; please report this", name));
}

}  // namespace ranvier::transport

namespace ranvier {

using transport::load_module;

namespace {

std::string missing_module(std::string_view name) {
  try {
    load_module(name);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::string missing_transport(std::string_view name) {
  return name == "mpi" || name == "ucx" ? missing_module(name) : std::string();
}

std::string missing_guest_service() { return missing_module("grpc"); }

std::unique_ptr<Endpoint> mpi_endpoint(const WorldInfo& info) { return load_module("mpi").endpoint(info, {}); }

std::unique_ptr<Endpoint> ucx_endpoint(const WorldInfo& info, const UcxOptions& options) {
  return load_module("ucx").endpoint(info, {.interface_address = options.interface_address, .ports = options.ports});
}

std::unique_ptr<GuestService> guest_service(GuestCalls calls, const GuestOptions& options) {
  check_guest_security(options.security);
  return load_module("grpc").guest_service(std::move(calls), options);
}

}  // namespace ranvier

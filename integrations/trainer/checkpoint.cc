// The file: one line that names the format, one line of JSON (identity, step, seconds, number of parameters), the
// parameters and what the optimizer keeps as little-endian f32, what is each rank's own, and the CRC-32 of all that.
#include "integrations/trainer/checkpoint.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <system_error>

#include "base/whole_file.h"
#include "ranvier/error.h"

namespace ranvier::trainer {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little, "checkpoints are written as they stand in memory");

constexpr std::string_view first_line = "ranvier checkpoint 4\n";

void append(std::string& text, const std::vector<float>& values) {
  text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::uint32_t checksum(std::string_view text) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

[[noreturn]] void refuse(const fs::path& path, std::string_view problem) {
  throw Error(ErrorKind::config, fmt::format("cannot resume from {}: {}", path.string(), problem));
}

[[noreturn]] void throw_unwritable(const fs::path& path, const std::error_code& problem) {
  throw Error(
      ErrorKind::config,
      fmt::format("cannot write the checkpoint {} ({}); {} place with --save", path.string(), problem.message(),
                  problem == std::errc::no_space_on_device ? "free some space there or name another" : "name another"));
}

// Asked before all of it is read: another file may be larger than memory.
bool begins_as_checkpoint(const fs::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file)
    refuse(path, fmt::format("it cannot be opened ({}); name a file that --save has written", std::strerror(errno)));
  std::string beginning(first_line.size(), '\0');
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  return file && beginning == first_line;
}

}  // namespace

void save_checkpoint(const fs::path& path, const Checkpoint& checkpoint) {
  std::vector<std::size_t> sizes;
  for (const auto& state : checkpoint.rank_state) sizes.push_back(state.size());
  const nlohmann::json header = {{"identity", checkpoint.identity},
                                 {"step", checkpoint.step},
                                 {"seconds", checkpoint.seconds},
                                 {"tuning", checkpoint.tuning},
                                 {"parameters", checkpoint.parameters.size()},
                                 {"momentum", checkpoint.momentum.size()},
                                 {"rank_state", sizes}};
  std::string text(first_line);
  text += header.dump() + '\n';
  append(text, checkpoint.parameters);
  append(text, checkpoint.momentum);
  for (const auto& state : checkpoint.rank_state)
    text.append(reinterpret_cast<const char*>(state.data()), state.size());
  const std::uint32_t sum = checksum(text);
  text.append(reinterpret_cast<const char*>(&sum), sizeof sum);

  if (const std::error_code problem = write_named(path, text, true)) throw_unwritable(path, problem);
}

void check_checkpoint_place(const fs::path& path) {
  if (const std::error_code problem = check_named(path)) throw_unwritable(path, problem);
}

Checkpoint load_checkpoint(const fs::path& path) {
  if (fs::exists(path) && !fs::is_regular_file(path))  // a pipe would be waited for
    refuse(path, "it is no regular file; name a file that --save has written");
  if (!begins_as_checkpoint(path))
    refuse(path, "it is not a checkpoint of ranvier; name a file that --save has written");
  const WholeFile file = read_whole(path, std::numeric_limits<std::size_t>::max());
  if (!file.problem.empty()) refuse(path, fmt::format("it cannot be read ({}); use another checkpoint", file.problem));
  const std::string& text = file.text;
  constexpr std::string_view damaged = "it is damaged; use an earlier checkpoint or begin anew without --resume";
  std::uint32_t sum = 0;
  if (text.size() < first_line.size() + sizeof sum) refuse(path, damaged);
  const std::string_view whole = std::string_view(text).substr(0, text.size() - sizeof sum);
  std::memcpy(&sum, text.data() + whole.size(), sizeof sum);
  const std::size_t header_end = whole.find('\n', first_line.size());
  if (sum != checksum(whole) || header_end == std::string_view::npos) refuse(path, damaged);

  Checkpoint checkpoint;
  std::size_t count = 0;
  std::size_t optimizer = 0;
  std::vector<std::size_t> sizes;  // of what each rank has of its own
  try {
    const auto header = nlohmann::json::parse(whole.substr(first_line.size(), header_end - first_line.size()));
    checkpoint.identity = header.at("identity").get<Identity>();
    checkpoint.step = header.at("step").get<std::uint64_t>();
    checkpoint.seconds = header.at("seconds").get<double>();
    checkpoint.tuning = header.value("tuning", "");
    count = header.at("parameters").get<std::size_t>();
    optimizer = header.at("momentum").get<std::size_t>();
    sizes = header.at("rank_state").get<std::vector<std::size_t>>();
  } catch (const nlohmann::json::exception&) {
    refuse(path, damaged);
  }
  const std::string_view values = whole.substr(header_end + 1);
  if (count > values.size() || optimizer > values.size() || values.size() < (count + optimizer) * sizeof(float))
    refuse(path, damaged);
  std::string_view kept = values.substr((count + optimizer) * sizeof(float));
  for (const std::size_t size : sizes) {
    if (size > kept.size()) refuse(path, damaged);
    const auto bytes = std::as_bytes(std::span(kept.data(), size));
    checkpoint.rank_state.emplace_back(bytes.begin(), bytes.end());
    kept.remove_prefix(size);
  }
  if (!kept.empty()) refuse(path, damaged);
  checkpoint.parameters.resize(count);
  checkpoint.momentum.resize(optimizer);
  std::memcpy(checkpoint.parameters.data(), values.data(), count * sizeof(float));
  std::memcpy(checkpoint.momentum.data(), values.data() + count * sizeof(float), optimizer * sizeof(float));
  return checkpoint;
}

void check_identity(const fs::path& path, const Checkpoint& checkpoint, const Identity& identity) {
  const auto check = [&](const std::string& name, const std::string& value) {
    const auto saved = checkpoint.identity.find(name);
    const std::string before = saved == checkpoint.identity.end() ? "nothing" : saved->second;
    if (before == value) return;
    // Of a model that is divided each replica counts as one.
    const auto parallel = identity.find("--parallel");
    const bool is_divided = parallel != identity.end() && parallel->second != "none";
    refuse(path, fmt::format("it was made with {} {} and this run has {}; give both the same settings",
                             name == "workers" && is_divided ? "replicas of the model:" : name,
                             before.empty() ? "none" : before, value.empty() ? "none" : value));
  };
  // What others follow from, where they are not given, comes before them, and which policies the last matters to
  // behind.
  const std::array<std::string, 2> first{"--model", "--optimizer"};
  const std::string last = "--compress";
  for (const std::string& name : first)
    if (const auto found = identity.find(name); found != identity.end()) check(name, found->second);
  for (const auto& [name, value] : identity)
    if (name != last) check(name, value);
  if (const auto codec = identity.find(last); codec != identity.end()) check(last, codec->second);
}

fs::path checkpoint_file(const fs::path& file_or_folder) {
  std::error_code ignored;
  const bool is_folder = !file_or_folder.has_filename() || fs::is_directory(file_or_folder, ignored);
  return is_folder ? file_or_folder / "checkpoint.ranvier" : file_or_folder;
}

}  // namespace ranvier::trainer

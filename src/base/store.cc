#include "ranvier/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/file_lock.h"
#include "base/socket.h"
#include "base/whole_file.h"
#include "ranvier/error.h"
#include "ranvier/text.h"
#include "ranvier/timeouts.h"

namespace ranvier {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

[[noreturn]] void throw_missing(const std::string& key, std::chrono::milliseconds waited) {
  throw Error(ErrorKind::timeout, fmt::format("'{}' did not appear in the store within {} ms; is every rank running?",
                                              key, waited.count()));
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Until the deadline it may yet be replaced by one that can be read; to wait longer is no remedy.
[[noreturn]] void throw_unread(const std::string& key, const fs::path& path, std::string_view problem,
                               std::chrono::milliseconds waited) {
  throw Error(ErrorKind::config,
              fmt::format("'{}' could not be read from the store within {} ms: {} ({}); remove it, or name another "
                          "directory for the store",
                          key, waited.count(), path.string(), problem));
}

std::string_view remedy(const std::error_code& problem) {
  switch (problem.value()) {
    case ENOSPC:
    case EDQUOT:
      return "free some space there, or name a directory elsewhere for the store";
    case ENOENT:
      return "keep the store's directory until all ranks have ended";
    case EMFILE:
      return "allow this process more open files (ulimit -n)";
    case EFBIG:
      return "allow this process larger files (ulimit -f)";
    default:
      return "name a directory for the store in which every rank may write files";
  }
}

[[noreturn]] void throw_unwritable(const fs::path& file, const std::error_code& problem) {
  throw Error(ErrorKind::config,
              fmt::format("cannot write {} ({}); {}", file.string(), problem.message(), remedy(problem)));
}

// Keys become file names: anything but letters, digits, '-' and '_' is written as %XX, so that '/' stays one file.
std::string file_name(const std::string& key) {
  if (key.empty()) throw Error(ErrorKind::usage, "the empty text is no key of a store; give it a name");
  std::string name;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '-' || c == '_')
      name += c;
    else
      name += fmt::format("%{:02X}", byte);
  }
  return name;
}

// Of a counter that is held for as long as it takes to write one small file.
constexpr std::chrono::seconds longest_lock{30};

// The job's token is among the values, and a folder that was there before may be open to others.
constexpr mode_t private_file = S_IRUSR | S_IWUSR;

// The file, locked for this process alone; the kernel lets go of it when the holder closes it or dies.
Fd locked(const fs::path& path) {
  Fd file(open(path.c_str(), O_CREAT | O_RDWR | O_NONBLOCK | O_CLOEXEC, private_file));
  const std::error_code problem = file ? lock_until(file, LOCK_EX, steady_clock::now() + longest_lock)
                                       : std::error_code(errno, std::generic_category());
  if (problem == std::errc::timed_out)
    throw Error(ErrorKind::timeout, fmt::format("another process has held {} for {} s; is it stopped?", path.string(),
                                                longest_lock.count()));
  if (problem) throw Error(ErrorKind::config, fmt::format("cannot lock {}: {}", path.string(), problem.message()));
  return file;
}

// Where the folder is new only this user gets into it, since the job's key will lie there; one that is there was made
// by somebody who may want others in it.
std::error_code make_private_folder(fs::path folder) {
  if (!folder.has_filename()) folder = folder.parent_path();  // of "store/"
  std::error_code problem;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), problem);
  if (problem || mkdir(folder.c_str(), 0700) == 0) return problem;
  const int why = errno;
  return why == EEXIST && fs::is_directory(folder, problem) ? std::error_code()
                                                            : std::error_code(why, std::generic_category());
}

// Values are as large as whoever sets them likes.
WholeFile read_value(const fs::path& path) { return read_whole(path, std::numeric_limits<std::size_t>::max()); }

class FileStore final : public Store {
 public:
  // By its whole path: whoever holds it may change to another folder.
  explicit FileStore(const fs::path& directory) {
    std::error_code problem;
    directory_ = fs::absolute(directory, problem);
    if (!problem) problem = make_private_folder(directory_);
    if (problem)
      throw Error(ErrorKind::config,
                  fmt::format("cannot create the store directory {}: {}; name one that can be, or that you own",
                              directory.string(), problem.message()));
  }

  void set(const std::string& key, std::string_view value) override {
    const fs::path path = directory_ / file_name(key);
    if (const std::error_code problem = write_whole(path, value, false, private_file)) throw_unwritable(path, problem);
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const fs::path path = directory_ / file_name(key);
    const auto deadline = steady_clock::now() + bounded(timeout);
    for (auto pause = std::chrono::microseconds(200);; pause = std::min(pause * 2, std::chrono::microseconds(20'000))) {
      WholeFile value = read_value(path);
      if (value.problem.empty()) return std::move(value.text);
      if (steady_clock::now() >= deadline) {
        if (!is_there(path)) throw_missing(key, timeout);
        value = read_value(path);  // it may have come since
        if (value.problem.empty()) return std::move(value.text);
        if (!is_there(path)) throw_missing(key, timeout);  // or gone
        throw_unread(key, path, value.problem, timeout);
      }
      std::this_thread::sleep_for(pause);
    }
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const fs::path path = directory_ / file_name(key);
    const Fd lock = locked(path.string() + ".lock");
    std::int64_t sum = delta;
    if (is_there(path)) {
      const WholeFile before = read_value(path);
      const auto value = parse_number<std::int64_t>(before.text);
      if (!value)
        throw Error(ErrorKind::config,
                    fmt::format("{} is no counter ({}); remove it, or name another directory for the store",
                                path.string(), before.problem.empty() ? "it holds no number" : before.problem));
      sum += *value;
    }
    set(key, std::to_string(sum));
    return sum;
  }

 private:
  fs::path directory_;
};

class MemoryStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, bounded(timeout), [&] { return values_.contains(key); })) throw_missing(key, timeout);
    return values_[key];
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = values_.try_emplace(key, "0");
    const auto before = parse_number<std::int64_t>(place->second);
    if (!before)
      throw Error(ErrorKind::config,
                  fmt::format("'{}' of the store is no counter (it holds no number); count by another "
                              "key",
                              key));
    const std::int64_t sum = *before + delta;
    place->second = std::to_string(sum);
    changed_.notify_all();
    return sum;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

class PrefixStore final : public Store {
 public:
  PrefixStore(Store& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}
  void set(const std::string& key, std::string_view value) override { store_.set(prefix_ + key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_.get(prefix_ + key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return store_.add(prefix_ + key, delta); }

 private:
  Store& store_;
  std::string prefix_;
};

}  // namespace

std::unique_ptr<Store> file_store(const fs::path& directory) { return std::make_unique<FileStore>(directory); }
std::shared_ptr<Store> memory_store() { return std::make_shared<MemoryStore>(); }
std::unique_ptr<Store> prefix_store(Store& store, std::string prefix) {
  return std::make_unique<PrefixStore>(store, std::move(prefix));
}

}  // namespace ranvier

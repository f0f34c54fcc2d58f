#include "ranvier/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/whole_file.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

[[noreturn]] void throw_missing(const std::string& key, std::chrono::milliseconds waited) {
  throw Error(ErrorKind::timeout, fmt::format("'{}' did not appear in the store within {} ms; is every rank running?",
                                              key, waited.count()));
}

[[noreturn]] void throw_unwritable(const fs::path& file, const std::error_code& problem) {
  const bool is_full = problem == std::errc::no_space_on_device || problem.value() == EDQUOT;
  const bool is_gone = problem == std::errc::no_such_file_or_directory;
  throw Error(ErrorKind::config,
              fmt::format("cannot write {} ({}); {}", file.string(), problem.message(),
                          is_full   ? "free some space there, or name a directory elsewhere for the store"
                          : is_gone ? "keep the store's directory until all ranks have ended"
                                    : "name a directory for the store in which every rank may write files"));
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

// Holds an exclusive lock on a file; the kernel lets go of it when the holder dies.
class FileLock {
 public:
  explicit FileLock(const fs::path& path) : file_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    if (file_ < 0 || flock(file_, LOCK_EX) != 0) {
      const int problem = errno;
      if (file_ >= 0) close(file_);
      throw Error(ErrorKind::config, fmt::format("cannot lock {}: {}", path.string(), std::strerror(problem)));
    }
  }
  ~FileLock() { close(file_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

class FileStore final : public Store {
 public:
  explicit FileStore(fs::path directory) : directory_(std::move(directory)) {
    std::error_code problem;
    fs::create_directories(directory_, problem);
    if (problem)
      throw Error(ErrorKind::config,
                  fmt::format("cannot create the store directory {}: {}", directory_.string(), problem.message()));
  }

  void set(const std::string& key, std::string_view value) override {
    const fs::path path = directory_ / file_name(key);
    if (const std::error_code problem = write_whole(path, value)) throw_unwritable(path, problem);
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const fs::path path = directory_ / file_name(key);
    const auto deadline = steady_clock::now() + timeout;
    for (auto pause = std::chrono::microseconds(200);; pause = std::min(pause * 2, std::chrono::microseconds(20'000))) {
      if (std::ifstream file(path, std::ios::binary); file)
        return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      if (steady_clock::now() >= deadline) throw_missing(key, timeout);
      std::this_thread::sleep_for(pause);
    }
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const FileLock lock(directory_ / (file_name(key) + ".lock"));
    std::int64_t value = 0;
    if (std::ifstream file(directory_ / file_name(key)); file) file >> value;
    value += delta;
    set(key, std::to_string(value));
    return value;
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
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) throw_missing(key, timeout);
    return values_[key];
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    const std::int64_t sum = (value.empty() ? 0 : std::stoll(value)) + delta;
    value = std::to_string(sum);
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

std::unique_ptr<Store> file_store(fs::path directory) { return std::make_unique<FileStore>(std::move(directory)); }
std::shared_ptr<Store> memory_store() { return std::make_shared<MemoryStore>(); }
std::unique_ptr<Store> prefix_store(Store& store, std::string prefix) {
  return std::make_unique<PrefixStore>(store, std::move(prefix));
}

}  // namespace ranvier

// Where ranks find one another before they can talk: a small key-value store that all of them reach.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace ranvier {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, std::string_view value) = 0;
  // Waits until `key` has been set. Throws Error{timeout} when `timeout` passes first.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Adds to a counter that starts at 0; returns the new value. Atomic across processes.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;
};

// A store in a directory that all ranks see (local disk for one host, a shared file system for several).
// Creates the directory where it is missing; whoever owns the job removes it afterwards. A relative one is looked up now.
std::unique_ptr<Store> file_store(const std::filesystem::path& directory);

// A store in this process's memory, for ranks that are threads.
std::shared_ptr<Store> memory_store();

// The same store seen under a prefix, so that several communicators can share one. `store` outlives it.
std::unique_ptr<Store> prefix_store(Store& store, std::string prefix);

}  // namespace ranvier

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

#include "integrations/torch/backend.h"
#include "ranvier/error.h"

namespace ranvier::pytorch {
namespace {

// Whoever waits as short as this does so again and again, and a TCPStore warns on stderr of each wait that ends so.
constexpr std::chrono::milliseconds brief(500);
constexpr std::chrono::milliseconds longest_nap(100);

class TorchStore final : public Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, std::string_view value) override {
    calling(key, [&] { store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    // get() alone would wait for as long as the store was made to, 5 minutes by default. Zero would mean for ever.
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const auto is_late = [&] { return std::chrono::steady_clock::now() >= deadline; };
    const Error too_late(ErrorKind::timeout, "'" + key + "' did not appear in torch's store within " +
                                                 std::to_string(timeout.count()) + " ms; is every rank running?");
    if (timeout <= brief && can_check(key)) {
      for (auto nap = std::chrono::milliseconds(1); !calling(key, [&] { return store_->check({key}); });
           nap = std::min(2 * nap, longest_nap)) {
        if (is_late()) throw too_late;
        std::this_thread::sleep_for(nap);
      }
    } else {
      try {
        store_->wait({key}, std::max(timeout, std::chrono::milliseconds(1)));
      } catch (const std::exception& error) {
        // Each kind of store has an exception of its own for this.
        throw is_late() ? too_late : lost(key, error);
      }
    }
    return calling(key, [&] {
      const std::vector<std::uint8_t> value = store_->get(key);
      return std::string(value.begin(), value.end());
    });
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    return calling(key, [&] { return store_->add(key, delta); });
  }

 private:
  // Stores written in Python may have only what waiting takes.
  bool can_check(const std::string& key) {
    try {
      store_->check({key});
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  static Error lost(const std::string& key, const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    return Error(ErrorKind::unreachable,
                 "torch's store failed at '" + key + "', is the process that serves it alive? (" +
                     (torch_error ? torch_error->what_without_backtrace() : error.what()) + ")");
  }

  template <class Call>
  auto calling(const std::string& key, Call call) -> decltype(call()) {
    try {
      return call();
    } catch (const std::exception& error) {
      throw lost(key, error);
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::unique_ptr<Store> torch_store(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_unique<TorchStore>(std::move(store));
}

}  // namespace ranvier::pytorch

// Memory for what has arrived over TCP, lent to a stream until its caller has used all of it.
//
// The buffer that came back last is lent first. Collectives go round the lanes, and with 512 KiB for each lane to each
// peer every operation found its buffer cold: 4 lanes overflow L2 together, and 64 ranks had 160 MB of them. So the
// next lane finds what the last one left in the cache, and only as many exist as are held at one time.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace ranvier::transport {

class ReceiveBuffers {
 public:
  static constexpr std::size_t bytes = 512 << 10;  // stays in L2 until it is reduced

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Buffer = std::unique_ptr<std::byte[], Free>;

  // `most`: that are ever lent at once.
  explicit ReceiveBuffers(std::size_t most) { idle_.reserve(most); }

  Buffer take() {
    if (idle_.empty()) {
      Buffer fresh(static_cast<std::byte*>(std::aligned_alloc(page, bytes)));
      if (!fresh) throw std::bad_alloc();
      return fresh;
    }
    Buffer last = std::move(idle_.back());
    idle_.pop_back();
    return last;
  }
  void give(Buffer buffer) { idle_.push_back(std::move(buffer)); }

 private:
  static constexpr std::size_t page = 4096;

  std::vector<Buffer> idle_;
};

}  // namespace ranvier::transport

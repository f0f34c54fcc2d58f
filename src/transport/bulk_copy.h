// How payload of kilobytes gets into memory that another core has just read.
//
// An ordinary store must first take its cache line back from that core. Between cores of one L3 cache this costs about
// 6 ns a line or less; across L3 caches it cost 24 ns (EPYC, Zen 4: 128 KiB took 47 us to write and 7 us to read). A
// store that goes around the caches does not wait for the other core (4 us), but the reader then reads from memory,
// which makes near cores twice as slow. Which way wins depends on where the scheduler, or a hypervisor, has put both
// cores, and that changes while a job runs: so both are measured all the time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ranvier::transport {

// memcpy around the caches; what it wrote is ordered before any later store of this thread.
void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes);

// Chooses between the two by what they took. Streaming must be twice as fast, for what it costs the reader.
class CopyChooser {
 public:
  enum Way : std::uint8_t { cached, streaming };

  // The way to try with the next piece: the better one, and now and then the other one.
  Way next() {
    if (--until_probe_ > 0) return best_;
    until_probe_ = pieces_between_probes;
    return best_ == cached ? streaming : cached;
  }
  void took(Way way, std::uint64_t ticks, std::size_t bytes);

  static constexpr int pieces_between_probes = 256;

 private:
  std::array<double, 2> ticks_per_byte_{};  // 0: not tried yet
  int until_probe_ = 4;
  Way best_ = cached;
};

// memcpy into a slot, by the way that has been better of late for this writer.
class BulkCopier {
 public:
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);

 private:
  CopyChooser chooser_;
};

}  // namespace ranvier::transport

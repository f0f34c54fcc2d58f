// libFuzzer target: the rings of two ranks that share memory, which a rank that runs wild may write to wherever and
// whenever it likes. The input says what is written where, and in between what the other rank does with its ends of two
// rings, one each way. Whatever it is given lies in the rings, and it is refused by an Error or goes on.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "ranvier/error.h"
#include "transport/slot_ring.h"

namespace {

using namespace ranvier;
using namespace ranvier::transport;

constexpr std::size_t slice = 1024;

void require(bool held) {
  if (!held) std::abort();
}

// Its parts stand alone, so that a sanitizer sees whoever leaves them.
class Ring {
 public:
  RingMemory memory() { return {control_.get(), lines_.get(), areas_.data(), slice}; }

  // What a wild rank does; `where` says in which part.
  void write(std::uint8_t where, std::size_t at, std::span<const std::uint8_t> bytes) {
    const std::size_t line = at % slots_per_ring;
    if (where % 4 == 0) {
      put(&control_->freed, bytes);
    } else if (where % 4 == 1) {
      put(&lines_[line].tag, bytes);
    } else if (where % 4 == 2) {
      const std::size_t first = at % inline_bytes;
      std::memcpy(lines_[line].payload.data() + first, bytes.data(), std::min(bytes.size(), inline_bytes - first));
    } else {
      control_->starved.store(bytes.size() % 2 == 0 ? 1 : 0);
    }
  }
  bool holds(ConstBytes view) const {
    const auto within = [&](const std::byte* begin, std::size_t size) {
      return view.data() >= begin && view.data() + view.size() <= begin + size;
    };
    return within(areas_.data(), areas_.size()) ||
           within(reinterpret_cast<const std::byte*>(lines_.get()), slots_per_ring * sizeof(SlotLine));
  }

 private:
  static void put(std::atomic<std::uint64_t>* word, std::span<const std::uint8_t> bytes) {
    std::uint64_t value = word->load();
    std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
    word->store(value);
  }

  std::unique_ptr<RingControl> control_ = std::make_unique<RingControl>();
  std::unique_ptr<SlotLine[]> lines_ = std::make_unique<SlotLine[]>(slots_per_ring);
  std::vector<std::byte> areas_ = std::vector<std::byte>(RingMemory::payload_bytes(slice));
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Ring there, back;
  RingWriter writer(there.memory());
  RingReader reader(back.memory(), 0, nullptr, &writer);
  const std::vector<std::byte> body(slice);
  try {
    for (std::span rest(data, size); rest.size() >= 3;) {
      const std::uint8_t what = rest[0], one = rest[1], other = rest[2];
      rest = rest.subspan(3);
      switch (what % 8) {
        case 0:
        case 1:
        case 2: {
          const auto bytes = rest.first(std::min<std::size_t>(other % 32, rest.size()));
          rest = rest.subspan(bytes.size());
          (what % 2 == 0 ? back : there).write(what / 8, one, bytes);
          break;
        }
        case 3:
          writer.try_push(ConstBytes(body).first(one % (head_bytes + 1)), ConstBytes(body).first(other * 4),
                          one % 2 == 1);
          break;
        case 4: {
          const ConstBytes view = reader.peek();
          require(view.empty() || back.holds(view) || there.holds(view));
          reader.pop(std::min<std::size_t>(one, view.size()));
          break;
        }
        case 5: {
          const ConstBytes view = reader.peek();
          const Bytes place = reader.answerable(view.last(std::min<std::size_t>(one, view.size())));
          if (place.empty() || !writer.has_room()) break;
          require(back.holds(place));
          std::ranges::fill(place, std::byte{1});
          writer.push_answer({}, reader.place_of(place));
          reader.pop_answered();
          break;
        }
        case 6:
          require(writer.lent() <= slots_per_ring * (slice + 2 * head_bytes));
          break;
        default:
          reader.has_news();
          writer.has_news();
          writer.announce_starved(one % 2 == 0);
      }
    }
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::internal);
  }
  return 0;
}

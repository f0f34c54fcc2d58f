#include <fmt/format.h>

#include "ranvier/design_search.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

class Enumeration {
 public:
  explicit Enumeration(const ShapeSearch& search) : search_(search) {}

  std::vector<NetworkShape> all() {
    extend(search_.npus, "");
    return std::move(found_);
  }

 private:
  void extend(std::int64_t left, const std::string& text) {
    ++dimensions_;
    for (std::int64_t size = 2; size <= left && size <= 1 << 20; ++size) {
      if (left % size != 0) continue;
      const bool last = size == left;
      if (last ? dimensions_ < search_.fewest_dimensions : dimensions_ >= search_.most_dimensions) continue;
      for (const Block block : search_.blocks) {
        const NetworkShape one{.dimensions = {{.block = block, .size = static_cast<int>(size)}}};
        const std::string longer = text + (text.empty() ? "" : "_") + to_string(one);
        if (last)
          add(longer);
        else
          extend(left / size, longer);
      }
    }
    --dimensions_;
  }

  void add(const std::string& text) {
    if (found_.size() == search_.most_shapes)
      throw Error(ErrorKind::usage, fmt::format("{} NPUs have more than {} shapes; allow fewer dimensions or blocks",
                                                search_.npus, search_.most_shapes));
    found_.push_back(parse_network(text));
  }

  const ShapeSearch& search_;
  int dimensions_ = 0;
  std::vector<NetworkShape> found_;
};

}  // namespace

std::vector<NetworkShape> shapes(const ShapeSearch& search) { return Enumeration(search).all(); }

}  // namespace ranvier

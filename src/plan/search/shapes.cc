#include <fmt/format.h>

#include <algorithm>

#include "ranvier/design_search.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

class Enumeration {
 public:
  explicit Enumeration(const ShapeSearch& search) : search_(search) {
    for (std::int64_t size = 2; size <= std::min<std::int64_t>(search.npus, 1 << 20); ++size)
      if (search.npus % size == 0) sizes_.push_back(size);
  }

  std::vector<NetworkShape> all() {
    if (is_product_of_sizes()) extend(search_.npus, "");
    return std::move(found_);
  }

 private:
  // Not where a prime is larger than any dimension, which would be seen anew behind each beginning.
  bool is_product_of_sizes() const {
    std::int64_t left = search_.npus;
    for (const std::int64_t size : sizes_)
      while (left % size == 0) left /= size;
    return left == 1;
  }

  void extend(std::int64_t left, const std::string& text) {
    ++dimensions_;
    for (const std::int64_t size : sizes_) {
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
  std::vector<std::int64_t> sizes_;  // that dimensions may have
  int dimensions_ = 0;
  std::vector<NetworkShape> found_;
};

}  // namespace

std::vector<NetworkShape> shapes(const ShapeSearch& search) { return Enumeration(search).all(); }

}  // namespace ranvier

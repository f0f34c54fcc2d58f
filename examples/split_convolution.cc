// Two 3x3 convolutions over an image whose rows are split over workers. A worker needs one row more above and below its
// own, which its neighbours have: the halo, which neighbor_exchange brings before each layer. The result is gathered
// and compared with that of the unsplit image, bit for bit: each output value is computed from the same numbers in the
// same order, so the arithmetic allows no difference at all.
//
//   split_convolution WORKERS [HEIGHT WIDTH]
//
// starts so many processes on this machine. Exit code: 0 where the results are equal.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "workers.h"

namespace {

using examples::number;
using ranvier::Collective;
using ranvier::Communicator;
using ranvier::Rank;

struct Layer {
  std::size_t in = 0;  // channels
  std::size_t out = 0;
  std::vector<float> weights = {};  // [row][column][in][out] of the 3x3 window
};

struct Size {
  std::size_t height = 0;
  std::size_t width = 0;
};

std::vector<Layer> layers() {
  std::vector<Layer> result{{.in = 3, .out = 16}, {.in = 16, .out = 8}};
  for (std::size_t l = 0; l < result.size(); ++l) {
    result[l].weights.resize(9 * result[l].in * result[l].out);
    for (std::size_t i = 0; i < result[l].weights.size(); ++i) result[l].weights[i] = number(l + 1, i) / 4;
  }
  return result;
}

// Rows `first` up to `end` of the image, 3 channels a pixel: what a worker would read from its part of a file.
std::vector<float> image_rows(std::size_t first, std::size_t end, std::size_t width) {
  std::vector<float> rows((end - first) * width * 3);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = number(0, first * width * 3 + i);
  return rows;
}

// One row of a convolution with zeros beyond the left and right border, and a ReLU: `above` points to the row above the
// middle one, and the three rows lie one behind another.
void convolve_row(const Layer& layer, const float* above, std::size_t width, float* result) {
  for (std::size_t x = 0; x < width; ++x, result += layer.out) {
    std::fill_n(result, layer.out, 0.0f);
    const float* weights = layer.weights.data();
    for (std::size_t row = 0; row < 3; ++row)
      for (std::size_t column = 0; column < 3; ++column, weights += layer.in * layer.out) {
        if (x + column < 1 || x + column > width) continue;
        const float* pixel = above + (row * width + x + column - 1) * layer.in;
        for (std::size_t i = 0; i < layer.in; ++i)
          for (std::size_t o = 0; o < layer.out; ++o) result[o] += pixel[i] * weights[i * layer.out + o];
      }
    for (std::size_t o = 0; o < layer.out; ++o) result[o] = std::max(result[o], 0.0f);
  }
}

// `framed` holds the rows to convolve and one more on either side.
std::vector<float> convolve(const Layer& layer, const std::vector<float>& framed, std::size_t width) {
  const std::size_t rows = framed.size() / (width * layer.in) - 2;
  std::vector<float> result(rows * width * layer.out);
  for (std::size_t y = 0; y < rows; ++y)
    convolve_row(layer, &framed[y * width * layer.in], width, &result[y * width * layer.out]);
  return result;
}

// Rows between the row above and the row below them, which `halo` holds one behind the other.
std::vector<float> frame(const std::vector<float>& rows, std::span<const float> halo) {
  const std::size_t row = halo.size() / 2;
  std::vector<float> framed(halo.begin(), halo.begin() + static_cast<std::ptrdiff_t>(row));
  framed.insert(framed.end(), rows.begin(), rows.end());
  framed.insert(framed.end(), halo.begin() + static_cast<std::ptrdiff_t>(row), halo.end());
  return framed;
}

std::vector<float> unsplit(const std::vector<Layer>& stack, const Size& size) {
  std::vector<float> rows = image_rows(0, size.height, size.width);
  for (const Layer& layer : stack)
    rows = convolve(layer, frame(rows, std::vector<float>(2 * size.width * layer.in)), size.width);
  return rows;
}

// This worker's rows through all layers. Rank r has the rows above those of rank r + 1: a line of ranks.
std::vector<float> split(Communicator& comm, const std::vector<Layer>& stack, std::size_t first, std::size_t end,
                         std::size_t width) {
  std::vector<float> rows = image_rows(first, end, width);
  for (const Layer& layer : stack) {
    const auto row = static_cast<std::ptrdiff_t>(width * layer.in);
    std::vector<float> border(rows.begin(), rows.begin() + row);  // the first row to the rank before this one, …
    border.insert(border.end(), rows.end() - row, rows.end());    // … and the last row to the one behind it
    std::vector<float> halo(border.size());  // beyond the image's own border nothing comes: it stays zero
    comm.neighbor_exchange(border, halo, {.algorithm = "neighbor_exchange"});
    rows = convolve(layer, frame(rows, halo), width);
  }
  return rows;
}

// What rank 0 receives: how many bytes each worker sent for halos, in rank order.
void print_cost(const std::vector<Layer>& stack, const Size& size, const std::vector<std::int64_t>& halo_bytes) {
  const auto workers = halo_bytes.size();
  const auto halos = std::accumulate(halo_bytes.begin(), halo_bytes.end(), std::int64_t{0});
  std::size_t channels = 0;
  for (const Layer& layer : stack) channels += layer.in;
  const std::size_t gathered = (workers - 1) * size.height * size.width * channels * sizeof(float);
  std::printf("halo: %lld bytes for both layers, at most %lld from one worker\n", static_cast<long long>(halos),
              static_cast<long long>(*std::max_element(halo_bytes.begin(), halo_bytes.end())));
  std::printf("gathering the image for everybody before each layer: %zu bytes", gathered);
  if (halos > 0) std::printf(", %.0f times as many", static_cast<double>(gathered) / static_cast<double>(halos));
  std::printf("\n");
}

// Whether all went well, as far as this rank can tell.
bool work(Communicator& comm, const Size& size) {
  const Rank rank = comm.rank(), workers = comm.world();
  const std::vector<Layer> stack = layers();

  const auto first_row = [&](Rank of) {
    return size.height * static_cast<std::size_t>(of) / static_cast<std::size_t>(workers);
  };
  const std::uint64_t before = comm.traffic().bytes_sent;
  const std::vector<float> mine = split(comm, stack, first_row(rank), first_row(rank + 1), size.width);
  const std::array<std::int64_t, 1> halo_bytes{static_cast<std::int64_t>(comm.traffic().bytes_sent - before)};

  const bool is_root = rank == 0;
  const std::size_t row = size.width * stack.back().out;
  std::vector<std::size_t> parts;
  for (Rank each = 0; each < workers; ++each) parts.push_back((first_row(each + 1) - first_row(each)) * row);
  std::vector<float> whole(is_root ? size.height * row : 0);
  comm.run({.collective = Collective::gather, .input = mine, .output = whole, .output_splits = parts});
  std::vector<std::int64_t> all_halo_bytes(static_cast<std::size_t>(workers));
  comm.gather(halo_bytes, all_halo_bytes, 0);
  if (!is_root) return true;

  const std::vector<float> expected = unsplit(stack, size);
  const bool equal = std::memcmp(whole.data(), expected.data(), expected.size() * sizeof(float)) == 0;
  std::printf("two 3x3 convolutions of a %zu x %zu image with 3, 16 and 8 channels; workers: %d\n", size.height,
              size.width, workers);
  print_cost(stack, size, all_halo_bytes);
  std::printf("result: %s\n", equal ? "equal to the unsplit one, bit for bit" : "DIFFERENT from the unsplit one");
  return equal;
}

}  // namespace

int main(int argc, char** argv) {
  const long workers = argc > 1 ? examples::positive(argv[1]) : 0;
  const Size size{.height = static_cast<std::size_t>(argc > 3 ? examples::positive(argv[2]) : 224),
                  .width = static_cast<std::size_t>(argc > 3 ? examples::positive(argv[3]) : 224)};
  if (workers == 0 || argc == 3 || argc > 4 || size.width == 0 || size.height < static_cast<std::size_t>(workers)) {
    std::fprintf(stderr, "usage: split_convolution WORKERS [HEIGHT WIDTH]: at least one row for each worker\n");
    return 2;
  }

  return examples::run_workers("split_convolution", static_cast<Rank>(workers),
                               [&](Communicator& comm) { return work(comm, size); });
}

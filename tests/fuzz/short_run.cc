// What runs a fuzz target where there is no libFuzzer: `NAME_short RUNS FOLDER` gives it every file of the folder, then
// so many mutations of them, the same ones each time. It finds what a change broke that lies near inputs that are
// known; campaigns (make fuzz) look further. An input that ends the program is left in NAME_short.input.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::size_t most_bytes = 8192;
constexpr unsigned most_seconds = 30;  // for one input

Input current;  // for the handler
std::string left_in;

extern "C" void leave_input(int signal) {
  const int file = open(left_in.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const char* const why =
      signal == SIGALRM ? "an input takes too long; it is in " : "an input ends the program; it is in ";
  bool written = write(file, current.data(), current.size()) >= 0;
  written = write(STDERR_FILENO, why, std::strlen(why)) > 0 && written;
  written = write(STDERR_FILENO, left_in.data(), left_in.size()) > 0 && written;
  _exit(written ? 1 : 2);
}

void run(const Input& input) {
  current = input;
  alarm(most_seconds);
  LLVMFuzzerTestOneInput(current.data(), current.size());
}

class Mutations {
 public:
  explicit Mutations(const std::vector<Input>& seeds) : seeds_(seeds) {}

  Input next() {
    Input input = pick();
    for (auto times = 1 + below(4); times > 0; --times) change(input);
    input.resize(std::min(input.size(), most_bytes));
    return input;
  }

 private:
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }
  const Input& pick() { return seeds_[below(seeds_.size())]; }
  static Input::iterator at(Input& input, std::size_t offset) {
    return input.begin() + static_cast<std::ptrdiff_t>(offset);
  }

  void change(Input& input) {
    constexpr std::array<std::uint64_t, 9> notable{0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x7fff'ffff, 0xffff'ffff, ~0ull};
    if (input.empty()) input.push_back(0);
    const std::size_t where = below(input.size());
    const std::size_t length = 1 + below(std::min<std::size_t>(input.size() - where, 64));
    switch (below(8)) {
      case 0:
        input[where] ^= static_cast<std::uint8_t>(1U << below(8));
        return;
      case 1:
        input[where] = static_cast<std::uint8_t>(random_());
        return;
      case 2: {
        const std::uint64_t value = notable[below(notable.size())] - below(2);
        std::memcpy(&input[where], &value, std::min(std::size_t{1} << below(4), input.size() - where));
        return;
      }
      case 3:
        input.erase(at(input, where), at(input, where + length));
        return;
      case 4: {
        const Input copy(at(input, where), at(input, where + length));
        input.insert(at(input, below(input.size())), copy.begin(), copy.end());
        return;
      }
      case 5: {  // of another seed, into its place or between
        const Input& other = pick();
        if (other.empty()) return;
        const std::size_t begin = below(other.size());
        const std::size_t size = 1 + below(std::min<std::size_t>(other.size() - begin, 256));
        const auto first = other.begin() + static_cast<std::ptrdiff_t>(begin);
        if (below(2) == 0) input.erase(at(input, where), at(input, where + std::min(size, input.size() - where)));
        input.insert(at(input, std::min(where, input.size())), first, first + static_cast<std::ptrdiff_t>(size));
        return;
      }
      case 6:
        input.resize(where);
        return;
      default: {
        const std::string digits = std::to_string(random_() >> below(64));
        input.insert(at(input, where), digits.begin(), digits.end());
        return;
      }
    }
  }

  const std::vector<Input>& seeds_;
  std::mt19937_64 random_{1};
};

}  // namespace

int main(int count, char** words) {
  std::size_t runs = 0;
  if (count != 3 || std::from_chars(words[1], words[1] + std::strlen(words[1]), runs).ec != std::errc{}) {
    std::fprintf(stderr, "usage: %s RUNS FOLDER\n", words[0]);
    return 2;
  }
  left_in = std::filesystem::path(words[0]).filename().string() + ".input";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(words[2])) files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<Input> seeds;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds in %s\n", words[2]);
    return 2;
  }
  current.reserve(4 * most_bytes);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) std::signal(signal, leave_input);
  for (const Input& seed : seeds) run(seed);
  Mutations mutations(seeds);
  for (std::size_t i = 0; i < runs; ++i) run(mutations.next());
  std::printf("%zu seeds and %zu mutations\n", seeds.size(), runs);
  return 0;
}

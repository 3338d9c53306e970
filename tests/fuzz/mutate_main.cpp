// Where there is no libFuzzer: fuzz_decoders SECONDS CORPUS feeds the target with every file of the
// kept corpus, then with mutations of them, drawn at random and guided by nothing.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

void mutate(Bytes& bytes, std::mt19937_64& random, const std::vector<Bytes>& corpus) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (size_t changes = 1 + below(8); changes > 0; --changes) {
    const size_t at = bytes.empty() ? 0 : below(bytes.size());
    switch (below(bytes.empty() ? 1 : 6)) {
      case 0:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                     static_cast<uint8_t>(random()));
        break;
      case 1:
        bytes[at] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 2:
        bytes[at] = static_cast<uint8_t>(random());
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes[at] = below(2) == 0 ? 0 : 0xff;
        break;
      case 5: {  // the end of another
        const Bytes& other = corpus[below(corpus.size())];
        if (at < other.size()) {
          bytes.resize(at);
          bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(at), other.end());
        }
        break;
      }
    }
  }
}

const Bytes* running = nullptr;
// Keeps the input that ended the program.
void dump(int signal) {
  if (running != nullptr)
    if (std::FILE* file = std::fopen("fuzz_decoders.crash", "wb")) {
      std::fwrite(running->data(), 1, running->size(), file);
      std::fclose(file);
    }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const Bytes& bytes) {
  running = &bytes;
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  running = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: fuzz_decoders SECONDS CORPUS\n");
    return 2;
  }
  for (int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS}) std::signal(signal, dump);
  std::vector<Bytes> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    run(corpus.back());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "fuzz_decoders: no corpus in %s\n", argv[2]);
    return 2;
  }
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  std::mt19937_64 random(std::random_device{}());
  int64_t runs = 0;
  for (; Clock::now() < until; ++runs) {
    Bytes bytes = corpus[random() % corpus.size()];
    mutate(bytes, random, corpus);
    run(bytes);
  }
  std::printf("%lld mutations of %zu inputs\n", static_cast<long long>(runs), corpus.size());
}

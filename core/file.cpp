#include "core/file.h"

#include "core/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>

namespace lockstep {
namespace {

constexpr int64_t kLargestTransfer = int64_t{1} << 30;  // Linux moves at most 2 GiB - 4 KiB a call

// Length of the valid UTF-8 sequence that begins at `i`; 0 when there is none.
size_t utf8_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  const size_t n = lead < 0x80                   ? 1
                   : lead >= 0xc2 && lead < 0xe0 ? 2
                   : (lead & 0xf0) == 0xe0       ? 3
                   : lead >= 0xf0 && lead < 0xf5 ? 4
                                                 : 0;
  if (n == 0 || i + n > text.size()) return 0;
  for (size_t k = 1; k < n; ++k)
    if ((byte(i + k) & 0xc0) != 0x80) return 0;
  if ((lead == 0xe0 && byte(i + 1) < 0xa0) || (lead == 0xed && byte(i + 1) >= 0xa0) ||
      (lead == 0xf0 && byte(i + 1) < 0x90) || (lead == 0xf4 && byte(i + 1) >= 0x90))
    return 0;
  return n;
}

int open_file(const std::string& path, File::Mode mode) {
  const int flags = mode == File::Mode::read         ? O_RDONLY | O_NONBLOCK
                    : mode == File::Mode::create_new ? O_WRONLY | O_CREAT | O_EXCL
                                                     : O_WRONLY | O_CREAT | O_TRUNC;
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  return fd;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Short, so that it fits wherever the name itself does.
std::string temporary_name(const std::string& path) {
  static std::atomic<int> counter{0};
  const size_t slash = path.rfind('/');
  return fmt::format("{}.lockstep-{}-{}.tmp",
                     slash == std::string::npos ? "" : path.substr(0, slash + 1), ::getpid(),
                     counter++);
}

}  // namespace

std::string printable(std::string_view text, size_t longest) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t n = utf8_length(text, i);
    if (n == 0 || byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
      ++i;
    } else {
      out += text.substr(i, n);
      i += n;
    }
  }
  if (out.size() <= longest) return out;
  size_t head = longest / 2, tail = out.size() - longest / 2;
  while (head > 0 && (out[head] & 0xc0) == 0x80) --head;
  while (tail < out.size() && (out[tail] & 0xc0) == 0x80) ++tail;
  return out.substr(0, head) + "…" + out.substr(tail);
}

File::File(std::string path, Mode mode) : File(path, mode, path) {}

File::File(const std::string& opened, Mode mode, std::string shown)
    : path_(std::move(shown)), fd_(open_file(opened, mode)) {
  if (fd_ < 0) fail(mode == Mode::read ? "open" : "create");
  struct stat status {};
  if (mode != Mode::read || ::fstat(fd_, &status) != 0 || S_ISREG(status.st_mode)) return;
  close();
  if (S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    fail("read");
  }
  throw SystemError(Fault::file,
                    fmt::format("cannot read {}: expected a regular file, got a pipe or a device",
                                printable(path_)));
}

File::~File() { close(); }

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

void File::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void File::fail(std::string_view doing) const {
  throw SystemError(Fault::file, fmt::format("cannot {} {}: {}", doing, printable(path_),
                                             std::generic_category().message(errno)));
}

int64_t File::size() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail("examine");
  return status.st_size;
}

void File::read_at(int64_t offset, void* to, int64_t bytes) const {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t n =
        ::pread(fd_, static_cast<char*>(to) + done,
                static_cast<size_t>(std::min(bytes - done, kLargestTransfer)), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read");
    if (n == 0)
      throw SystemError(Fault::file,
                        fmt::format("{} ends early; expected {} bytes from offset {}, got {}",
                                    printable(path_), bytes, offset, done));
    done += n;
  }
}

void File::write(const void* from, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t n = ::write(fd_, static_cast<const char*>(from) + done,
                              static_cast<size_t>(std::min(bytes - done, kLargestTransfer)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write");
    done += n;
  }
}

void File::truncate(int64_t bytes) {
  if (::ftruncate(fd_, bytes) != 0 || ::lseek(fd_, bytes, SEEK_SET) < 0) fail("shorten");
}

void File::sync() {
  // Some file systems and special files cannot: then there is nothing to wait for.
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS) fail("write");
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)),
      temporary_name_(temporary_name(path_)),
      temporary_(temporary_name_, File::Mode::create_new, path_) {}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(temporary_name_.c_str());
}

void AtomicFile::commit() {
  temporary_.sync();
  if (::rename(temporary_name_.c_str(), path_.c_str()) != 0)
    throw SystemError(Fault::file, fmt::format("cannot write {}: {}", printable(path_),
                                               std::generic_category().message(errno)));
  committed_ = true;
  // The name itself is safe once its folder is on the device; a folder that cannot be synced is not
  // a reason to say that the file was not written.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

std::string read_file(const std::string& path, int64_t limit) {
  const File file(path, File::Mode::read);
  const int64_t size = file.size();
  if (size > limit)
    throw SystemError(Fault::file, fmt::format("{} is too large; expected at most {} bytes, got {}",
                                               printable(path), limit, size));
  std::string text(static_cast<size_t>(size), '\0');
  file.read_at(0, text.data(), size);
  return text;
}

}  // namespace lockstep

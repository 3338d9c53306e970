#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// Bytes of a name made fit to print on one line: control bytes and invalid UTF-8 as \xNN, long
/// names shortened in the middle.
std::string printable(std::string_view text, size_t longest = 160);

/// An open file. Every failure is a SystemError(file) that names the path and the system's reason;
/// names are byte strings and are opened as they are.
class File {
 public:
  enum class Mode {
    read,        ///< must exist and be a regular file, not a directory, pipe or device
    create_new,  ///< must not exist
    replace,     ///< created, or emptied
  };
  File(std::string path, Mode mode);
  ~File();
  File(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int64_t size() const;
  /// Exactly `bytes` bytes from `offset` on; fewer there are an error.
  void read_at(int64_t offset, void* to, int64_t bytes) const;
  /// Appends. When the disk fills up the file may have grown by part of this.
  void write(const void* from, int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<int64_t>(text.size())); }
  void truncate(int64_t bytes);
  /// To the device itself.
  void sync();
  const std::string& path() const { return path_; }

 private:
  friend class AtomicFile;
  File(const std::string& opened, Mode mode, std::string shown);
  void close() noexcept;
  [[noreturn]] void fail(std::string_view doing) const;
  std::string path_;
  int fd_ = -1;
};

/// Writes a file that is either complete or absent: to a temporary beside it, then to the device,
/// then renamed over `path`. Without commit() nothing is left.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* from, int64_t bytes) { temporary_.write(from, bytes); }
  void write(std::string_view text) { temporary_.write(text); }
  void commit();

 private:
  std::string path_, temporary_name_;
  File temporary_;  // its errors speak of path_
  bool committed_ = false;
};

/// A whole file, at most `limit` bytes.
std::string read_file(const std::string& path, int64_t limit);

}  // namespace lockstep

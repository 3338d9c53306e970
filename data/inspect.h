#pragma once
#include "data/click_row.h"
#include "data/clicks.h"
#include "data/image_files.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::data {

enum class FileKind {
  clicks,        ///< ClickFile reads it
  interactions,  ///< Interactions does
  text,          ///< read_text does
  idx,           ///< open_idx does: images, or their labels
  cifar10,       ///< open_cifar10 does
};

/// What is in a file.
struct FileReport {
  FileKind kind = FileKind::text;
  ClickColumns columns;  ///< of clicks
  int64_t bytes = 0, lines = 0, header_lines = 0, longest_line = 0;
  int64_t samples = 0;    ///< rows that can be read: lines - header_lines - malformed ones
  int64_t positives = 0;  ///< of clicks: labels 1
  BadRowReport bad_rows;  ///< malformed rows, and the first few of them
  struct Column {
    std::string name;
    int64_t missing = 0;   ///< empty fields
    int64_t distinct = 0;  ///< values, the empty one not counted
    bool exact = true;     ///< false: `distinct` is an estimate with an error of 0.8 %
  };
  std::vector<Column> features;  ///< of samples; none for text
  struct Images {
    std::vector<int64_t> shape;                  ///< N, channels, height, width; of labels N
    std::vector<PixelCounts::Moments> channels;  ///< of pixels in 0 … 1; none for labels
    std::vector<int64_t> labels;                 ///< how many of each; none for IDX images
  };
  Images images;  ///< of idx and cifar10, which have no lines
};

struct InspectOptions {
  std::optional<FileKind> kind;  ///< none: what the first lines look like
  Categories categories = Categories::hexadecimal;
  std::function<void(int64_t done, int64_t total)> progress = {};  ///< bytes, now and then
};

/// Reads a file once, in bounded memory, on the calling thread's budget of threads, of which the
/// result does not depend. Clicks have 40 columns or a header that begins with `label`,
/// interactions 2 to 4 columns with TABs between them; IDX and CIFAR-10 files are known by their
/// first bytes and size; everything else is text. SystemError(file) when it cannot be read, is
/// empty, has a header that is none, or is an image file that its reader refuses.
FileReport inspect_file(const std::string& path, const InspectOptions& options);

}  // namespace lockstep::data

#include "data/interactions.h"

#include "data/category.h"

#include "core/check.h"
#include "core/parallel.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <unordered_map>

namespace lockstep::data {
namespace {

constexpr int64_t kGrain = 512;  // samples worth a thread
constexpr int64_t kTries = 16;
constexpr uint32_t kPairOrder = 0xFFFFFFFF;  // a key of the data order that no epoch has

// Rows in order of first appearance, or hashed.
class Vocabulary {
 public:
  explicit Vocabulary(int64_t hash_rows) : hash_rows_(hash_rows) {}
  int32_t row(std::string_view name) {
    if (hash_rows_ > 0) return category_row(name, hash_rows_);
    const auto at = rows_.find(name);
    if (at != rows_.end()) return at->second;
    const auto row = static_cast<int32_t>(rows_.size());
    rows_.emplace(name, row);
    return row;
  }
  int64_t rows() const { return hash_rows_ > 0 ? hash_rows_ : std::ssize(rows_); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return category_hash(name); }
  };
  int64_t hash_rows_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> rows_;
};

// What has been seen, numbered in order of first appearance.
class Numbers {
 public:
  int32_t number(int32_t of) {
    return numbers_.emplace(of, static_cast<int32_t>(numbers_.size())).first->second;
  }
  int64_t count() const { return std::ssize(numbers_); }

 private:
  std::unordered_map<int32_t, int32_t> numbers_;
};

}  // namespace

bool InteractionFields::header() const {
  return user == "user" || user == "user_id" || user == "userId";
}

InteractionFields interaction_fields(const Line& line) {
  const std::string_view text = line.text();
  const size_t tab = text.find('\t');
  InteractionFields fields{text.substr(0, tab), {}, {}};
  if (tab != std::string_view::npos) fields.item = text.substr(tab + 1);
  fields.item = fields.item.substr(0, fields.item.find('\t'));
  if (!line.whole)
    fields.wrong = fmt::format("expected a line of at most {} bytes", kLongestLine);
  else if (fields.user.empty() || fields.item.empty())
    fields.wrong = fmt::format("expected user and item with a TAB between them, got '{}'",
                               printable(text, 40));
  return fields;
}

Interactions::Interactions(const Options& options)
    : options_(options), bad_rows_(options.path, options.bad_rows) {
  check(options.negatives >= 0 && options.negatives <= 1000,
        "[data.interactions] negatives; expected 0..1000, got {}", options.negatives);
  check(options.hash_rows >= 0 && options.hash_rows <= INT32_MAX,
        "[data.interactions] rows of a table; expected 0..{}, got {}", INT32_MAX,
        options.hash_rows);
  check(options.held_out >= 0 && options.held_out < 1,
        "[data.interactions] held-out share; expected 0 <= share < 1, got {}", options.held_out);
  read();
  held_out_ = static_cast<int64_t>(options.held_out * static_cast<double>(pairs()));
  if (pairs() - held_out_ < 1)
    throw SystemError(Fault::file,
                      fmt::format("[data.interactions] {} has no pairs; expected at least 1",
                                  printable(options.path)));
  schema_.check_sizes();
  if (options.negatives > 0) group_by_user();
}

void Interactions::read() {
  const File file(options_.path, File::Mode::read);
  std::vector<char> buffer;
  LineReader reader(file, data_begin(file), file.size(), buffer);
  Vocabulary users(options_.hash_rows), items(options_.hash_rows);
  Numbers hashed;  // a table may have many more rows than there are users
  Line line;
  for (int64_t number = 1; reader.next(line); ++number) {
    const InteractionFields fields = interaction_fields(line);
    if (number == 1 && fields.header()) continue;
    if (!fields.wrong.empty()) {
      bad_rows_.add(number, fields.wrong);
    } else {
      check(pairs() < INT32_MAX, "[data.interactions] pairs; expected fewer than {}", INT32_MAX);
      const int32_t user = users.row(fields.user);
      users_.push_back(options_.hash_rows > 0 ? hashed.number(user) : user);
      if (hashed.count() > std::ssize(user_rows_)) user_rows_.push_back(user);
      items_.push_back(items.row(fields.item));
    }
  }
  schema_.table_rows = {users.rows(), items.rows()};
  count_ = options_.hash_rows > 0 ? hashed.count() : users.rows();
}

// A counting sort by user, then each user's items sorted and made distinct.
void Interactions::group_by_user() {
  begin_.assign(count_ + 1, 0);
  for (const int32_t user : users_) ++begin_[user + 1];
  for (int64_t u = 0; u < count_; ++u) begin_[u + 1] += begin_[u];
  owned_.resize(users_.size());
  std::vector<int64_t> next(begin_.begin(), begin_.end() - 1);
  for (size_t p = 0; p < users_.size(); ++p) owned_[next[users_[p]]++] = items_[p];
  int64_t kept = 0;
  for (int64_t u = 0; u < count_; ++u) {
    const auto first = owned_.begin() + begin_[u], last = owned_.begin() + begin_[u + 1];
    std::sort(first, last);
    const auto end = std::unique(first, last);
    begin_[u] = kept;
    for (auto item = first; item != end; ++item) owned_[kept++] = *item;
    if (end - first == schema_.table_rows[1])
      throw SystemError(
          Fault::file,
          fmt::format("[data.interactions] {}: a user (row {}) has each of the {} items; expected "
                      "some that can be negatives",
                      printable(options_.path), row_of(static_cast<int32_t>(u)), end - first));
  }
  begin_[count_] = kept;
  owned_.resize(kept);
}

bool Interactions::has(int32_t user, int32_t item) const {
  return std::binary_search(owned_.begin() + begin_[user], owned_.begin() + begin_[user + 1], item);
}

// Draws until it is none of the user's; who has nearly all items gets the next one that is not.
int32_t Interactions::negative(int64_t sample, int32_t user) const {
  const Random random(options_.seed, RandomStream::negatives);
  const int64_t rows = schema_.table_rows[1];
  int32_t item = 0;
  for (int64_t i = 0; i < kTries; ++i) {
    item = static_cast<int32_t>(random.below(rows, sample * kTries + i));
    if (!has(user, item)) return item;
  }
  while (has(user, item)) item = static_cast<int32_t>((item + int64_t{1}) % rows);
  return item;
}

void Interactions::fill(std::span<const int64_t> samples, ClickBuffer& to) const {
  const auto n = static_cast<int64_t>(samples.size());
  const int64_t count = pairs() * each();
  for (const int64_t sample : samples)
    check(sample >= 0 && sample < count, "[data.interactions] sample; expected 0..{}, got {}",
          count - 1, sample);
  const ClickBatch& batch = to.resize(n, 2 * n);
  if (n == 0) return;
  float* labels = batch.labels.mutable_data<float>();
  int32_t* rows = batch.rows.mutable_data<int32_t>();
  const Permutation order(pairs(), Random(0, RandomStream::data_order, kPairOrder));
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const auto pair = static_cast<int64_t>(order(samples[b] / each()));
      const bool chosen = samples[b] % each() == 0;
      labels[b] = chosen ? 1.0f : 0.0f;
      rows[b] = row_of(users_[pair]);
      rows[n + b] = chosen ? items_[pair] : negative(samples[b], users_[pair]);
    }
  });
}

}  // namespace lockstep::data

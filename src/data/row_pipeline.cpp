#include "row_pipeline.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr std::size_t most_rows = 256;
constexpr std::int64_t most_bytes = std::int64_t{1} << 20;
/// Text per thread that may be read and not yet handed over.
constexpr std::int64_t window_bytes = 8 * most_bytes;

/// Consecutive rows of one file.
struct RowGroup {
  std::int32_t file = 0;
  std::vector<Row> rows;
  std::string reader_failure;  ///< met behind these rows
  std::int64_t text_bytes = 0;
  std::int64_t bytes_read = 0;
};

/// Cuts the files into groups of rows. Used under a lock.
class RowGroups {
 public:
  explicit RowGroups(const DataFiles& files) : files_(files) {}

  std::optional<RowGroup> next() {
    while (file_ < files_.mapped.size()) {
      RowGroup group = read_group();
      if (file_ended_) {
        bytes_before_ += files_.mapped[file_].size();
        ++file_;
        reader_.reset();
      }
      if (!group.rows.empty() || !group.reader_failure.empty()) return group;
    }
    return std::nullopt;
  }

 private:
  RowGroup read_group() {
    RowGroup group;
    group.file = static_cast<std::int32_t>(file_);
    file_ended_ = false;
    try {
      if (!reader_) reader_.emplace(files_.names[file_].string(), files_.mapped[file_].text());
      Row row;
      while (group.rows.size() < most_rows && group.text_bytes < most_bytes && !file_ended_) {
        file_ended_ = !reader_->next(row);
        if (file_ended_) break;
        group.rows.push_back(row);
        group.text_bytes += static_cast<std::int64_t>(row.text.size());
      }
      group.bytes_read = bytes_before_ + reader_->position();
    } catch (const InvalidInput& error) {
      group.reader_failure = error.what();
      group.bytes_read = bytes_before_ + files_.mapped[file_].size();
      file_ended_ = true;
    }
    return group;
  }

  const DataFiles& files_;
  std::size_t file_ = 0;
  std::optional<RowReader> reader_;
  bool file_ended_ = false;
  std::int64_t bytes_before_ = 0;  ///< of the files before this one
};

void append_sample(TokenizedRows& result, const TokenizedSample& sample, const RowOrigin& origin, bool truncated) {
  SampleRecord record;
  record.begin = static_cast<std::int64_t>(result.tokens.size());
  record.length = static_cast<std::int64_t>(sample.ids.size());
  record.supervised = sample.supervised;
  record.file = origin.file;
  record.line = origin.line;
  record.truncated = truncated ? 1 : 0;
  result.records.push_back(record);
  result.tokens.insert(result.tokens.end(), sample.ids.begin(), sample.ids.end());
  result.tokens.insert(result.tokens.end(), sample.labels.begin(), sample.labels.end());
}

TokenizedRows tokenize_group(const RowGroup& group, const SampleBuilder& builder, const std::string& file) {
  TokenizedRows result;
  for (const Row& row : group.rows) {
    ++result.rows;
    try {
      const RowResult row_result = builder.build(row, file);
      const RowOrigin origin{group.file, row.line};
      result.report.add(row_result, origin);
      if (row_result.sample.ids.empty()) continue;
      append_sample(result, row_result.sample, origin, row_result.outcome == RowOutcome::truncated);
    } catch (const InvalidInput& error) {
      result.failures.emplace_back(error.what());
    }
  }
  if (!group.reader_failure.empty()) result.failures.push_back(group.reader_failure);
  result.text_bytes = group.text_bytes;
  result.bytes_read = group.bytes_read;
  return result;
}

/// Worker threads take groups in order and hand results over in order. They wait while much text is on its way, so a
/// giant row is alone in memory.
class OrderedPipeline {
 public:
  OrderedPipeline(const DataFiles& files, const SampleBuilder& builder, std::int64_t threads)
      : files_(files), builder_(builder), groups_(files), window_(window_bytes * threads) {
    workers_.reserve(static_cast<std::size_t>(threads));
    for (std::int64_t i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }

  ~OrderedPipeline() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  OrderedPipeline(const OrderedPipeline&) = delete;
  OrderedPipeline& operator=(const OrderedPipeline&) = delete;

  /// The next result, or none at the end.
  std::optional<TokenizedRows> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [this] { return failure_ || finished_.contains(consumed_) || (ended_ && consumed_ == taken_); });
    if (failure_) std::rethrow_exception(failure_);
    auto found = finished_.extract(consumed_);
    if (found.empty()) return std::nullopt;
    ++consumed_;
    on_its_way_ -= found.mapped().text_bytes;
    changed_.notify_all();
    return std::move(found.mapped());
  }

 private:
  void work() {
    try {
      while (work_on_one()) {
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  bool work_on_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || failure_ || ended_ || on_its_way_ < window_; });
    if (stopped_ || failure_ || ended_) return false;
    const std::optional<RowGroup> group = groups_.next();
    if (!group) {
      ended_ = true;
      changed_.notify_all();
      return false;
    }
    const std::int64_t index = taken_++;
    on_its_way_ += group->text_bytes;
    lock.unlock();
    TokenizedRows result =
        tokenize_group(*group, builder_, files_.names[static_cast<std::size_t>(group->file)].string());
    lock.lock();
    finished_.emplace(index, std::move(result));
    changed_.notify_all();
    return true;
  }

  const DataFiles& files_;
  const SampleBuilder& builder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  RowGroups groups_;
  const std::int64_t window_;  ///< bytes
  std::map<std::int64_t, TokenizedRows> finished_;
  std::int64_t taken_ = 0;
  std::int64_t consumed_ = 0;
  std::int64_t on_its_way_ = 0;  ///< bytes of text taken and not consumed
  bool ended_ = false;
  bool stopped_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

}  // namespace

DataFiles::DataFiles(const std::vector<std::filesystem::path>& files) : names(files) {
  mapped.reserve(files.size());
  for (const std::filesystem::path& file : files) bytes += mapped.emplace_back(file).size();
}

void tokenize_in_order(const DataFiles& files, const SampleBuilder& builder, std::int64_t threads,
                       const std::function<bool(TokenizedRows&)>& consume) {
  require(threads >= 1, "{} preprocessing threads, expected at least 1", threads);
  OrderedPipeline pipeline(files, builder, threads);
  while (std::optional<TokenizedRows> rows = pipeline.next()) {
    if (!consume(*rows)) return;
  }
}

}  // namespace skrull

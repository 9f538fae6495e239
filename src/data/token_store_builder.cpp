#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "file_lock.h"
#include "row_pipeline.h"
#include "skrull/core/error.h"
#include "skrull/core/log.h"
#include "skrull/core/text.h"
#include "skrull/data/token_store.h"
#include "token_file.h"

namespace skrull {
namespace {

namespace fs = std::filesystem;

/// Of everything that decides the tokens; not of names, times or places.
std::string cache_key(const DataFiles& data, const TokenStoreRequest& request, const std::function<void()>& between) {
  Checksum key;
  key.add_field(token_file_version);
  key.add_field(fmt::format("cutoff_len {} overlength {} vocab_size {}", request.options.cutoff_len,
                            name_of(request.options.overlength), request.options.vocab_size));
  for (const MappedFile& mapped : data.mapped) key.add_field(mapped.text(), between);
  key.add_field(request.encoder == nullptr ? "no tokenizer" : request.encoder->fingerprint());
  return key.hex();
}

/// Says how far tokenizing is: in place on a terminal, else a line every half minute.
class Progress {
 public:
  explicit Progress(std::int64_t total_bytes) : total_bytes_(total_bytes) {}

  void show(std::int64_t rows, std::int64_t bytes) {
    const auto now = Clock::now();
    if (now - last_shown_ < (log::on_terminal() ? std::chrono::milliseconds(200) : std::chrono::seconds(30))) return;
    last_shown_ = now;
    const double elapsed = seconds();
    const double left =
        elapsed * static_cast<double>(total_bytes_ - bytes) / static_cast<double>(std::max<std::int64_t>(bytes, 1));
    const std::string line =
        fmt::format("tokenizing: {} of {} ({}%), {} rows, {} left", format_bytes(bytes), format_bytes(total_bytes_),
                    100 * bytes / std::max<std::int64_t>(total_bytes_, 1), format_count(rows), format_duration(left));
    if (log::on_terminal()) {
      log::progress(line);
    } else {
      log::info("{}", line);
    }
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t total_bytes_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_shown_ = begin_;
};

/// The first bad rows. Further rows are still looked at, so that a person sees several mistakes at once, but not long.
class BadRows {
 public:
  /// False when enough was seen.
  bool add(const TokenizedRows& rows) {
    messages_.insert(messages_.end(), rows.failures.begin(), rows.failures.end());
    if (!messages_.empty()) rows_since_first_ += rows.rows;
    stopped_ = messages_.size() > most_shown || rows_since_first_ > most_further_rows;
    return !stopped_;
  }

  bool any() const { return !messages_.empty(); }

  [[noreturn]] void fail() const {
    std::string text = messages_.front();
    for (std::size_t i = 1; i < std::min(messages_.size(), most_shown); ++i) text += "\n" + messages_[i];
    if (messages_.size() > most_shown) text += "\nand further bad rows";
    if (stopped_) text += "\n(the rows behind were not looked at)";
    throw InvalidInput(text);
  }

 private:
  static constexpr std::size_t most_shown = 5;
  static constexpr std::int64_t most_further_rows = 10000;
  std::vector<std::string> messages_;
  std::int64_t rows_since_first_ = 0;
  bool stopped_ = false;
};

std::string list_files(const std::vector<fs::path>& files) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const fs::path& file : files) names.push_back(file.string());
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_report(const RowReport& report, const TokenStoreRequest& request) {
  if (report.rows() == 0) {
    throw_invalid_input("the data set holds no rows: {}",
                        request.files.empty() ? "it has no files" : list_files(request.files));
  }
  if (report.samples() == 0) {
    throw_invalid_input("no row is left to train on: {}",
                        describe_rows(report, request.files, request.options.cutoff_len));
  }
}

void build(const DataFiles& data, const TokenStoreRequest& request, const fs::path& file,
           const std::function<void()>& stop_if_wanted) {
  const std::int64_t threads =
      request.threads > 0 ? request.threads : std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  const SampleBuilder builder(request.encoder, request.options);
  TokenFileWriter writer(file);
  RowReport report;
  BadRows bad_rows;
  Progress progress(data.bytes);
  std::int64_t rows_seen = 0;
  tokenize_in_order(data, builder, threads, [&](TokenizedRows& rows) {
    stop_if_wanted();
    rows_seen += rows.rows;
    progress.show(rows_seen, rows.bytes_read);
    if (!bad_rows.add(rows)) return false;
    if (bad_rows.any()) return true;
    report.add(rows.report);
    writer.append(rows.tokens, rows.records);
    return true;
  });
  if (bad_rows.any()) bad_rows.fail();
  check_report(report, request);
  writer.commit(report);
  const double seconds = progress.seconds();
  log::info("tokenized {} rows ({}) in {} on {} threads: {}/s", format_count(rows_seen), format_bytes(data.bytes),
            format_duration(seconds), threads,
            format_bytes(static_cast<std::int64_t>(static_cast<double>(data.bytes) / std::max(seconds, 1e-9))));
}

/// Whether an earlier start, or another process, left a whole and unchanged file.
bool found_usable(const fs::path& file, const std::function<void()>& between) {
  if (!fs::exists(file)) return false;
  try {
    view_token_file(MappedFile(file), true, between);
    log::info("using the token cache {}", file.string());
    return true;
  } catch (const InvalidInput& error) {
    log::warning("{}: the token cache is damaged ({}) and is built again", file.string(), error.what());
    return false;
  }
}

}  // namespace

fs::path build_token_store(const TokenStoreRequest& request) {
  const auto stop_if_wanted = [&] {
    if (request.stop_wanted && request.stop_wanted()) throw Stopped("stopped while preparing the data");
  };
  const DataFiles data(request.files);
  std::error_code failed;
  fs::create_directories(request.cache_folder, failed);
  if (failed) {
    throw_run_failure("{}: the folder of the token cache can't be made: {}; name another one in SKRULL_CACHE",
                      request.cache_folder.string(), failed.message());
  }
  const std::string key = cache_key(data, request, stop_if_wanted);
  fs::path file = request.cache_folder / fmt::format("tokens-{}.bin", key);
  if (found_usable(file, stop_if_wanted)) return file;  // also from a folder that can't be written any more
  const FileLock lock(request.cache_folder / fmt::format("tokens-{}.lock", key),
                      fmt::format("waiting for another process that builds {}", file.string()), stop_if_wanted);
  if (!lock.waited() || !found_usable(file, stop_if_wanted)) build(data, request, file, stop_if_wanted);
  return file;
}

}  // namespace skrull

#include "skrull/data/token_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "skrull/core/rng.h"
#include "store_fixture.h"
#include "support/catch.h"

using namespace skrull;
using test::contains;
using test::invalid_input_of;
using test::StoreFixture;
using test::to_vector;

namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;
constexpr std::int32_t X = ignored_label;

std::vector<fs::path> files_in(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == extension) found.push_back(entry.path());
  }
  return found;
}

/// Many rows of all kinds and outcomes.
std::string mixed_rows(std::size_t count) {
  Rng rng(3, "rows");
  std::string rows;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string letters(rng.below(120), static_cast<char>('a' + rng.below(26)));
    switch (rng.below(3)) {
      case 0:
        rows += fmt::format(R"({{"text": "{}", "id": {}}})", letters, i);
        break;
      case 1:
        rows += fmt::format(
            R"({{"messages": [{{"role": "user", "content": "{}"}}, {{"role": "assistant", "content": "{}"}}]}})",
            letters, letters.substr(letters.size() / 2));
        break;
      default:
        rows += StoreFixture::row_of_length(i, 1 + static_cast<std::int64_t>(rng.below(120)));
        continue;
    }
    rows += rng.below(5) == 0 ? "\r\n\n" : "\n";
  }
  return rows;
}

void flip_byte(const fs::path& file, std::int64_t offset) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(offset);
  const char byte = static_cast<char>(stream.get() ^ 1);
  stream.seekp(offset);
  stream.put(byte);
}

}  // namespace

TEST_CASE("a store holds the samples of all files in order, with their origin") {
  StoreFixture fixture;
  const auto first =
      fixture.write("a.jsonl", "{\"input_ids\": [1,2,3]}\n\n{\"input_ids\": [4,5], \"labels\": [4,5]}\n");
  const auto second =
      fixture.write("b.json", "[{\"text\": \"x\"},\n {\"input_ids\": [6,7,8], \"labels\": [-100,-100,8]}]");
  const TokenStore store = fixture.open(fixture.request({first, second}));
  REQUIRE(store.size() == 4);
  CHECK(to_vector(store.ids(0)) == Ids{1, 2, 3});
  CHECK(to_vector(store.labels(0)) == Ids{2, 3, X});
  CHECK(to_vector(store.ids(1)) == Ids{4, 5});
  CHECK(to_vector(store.ids(2)) == Ids{'x', test::message_end});
  CHECK(to_vector(store.labels(3)) == Ids{X, 8, X});
  CHECK(store.supervised(0) == 2);
  CHECK(store.supervised(3) == 1);
  CHECK(store.length(3) == 3);
  CHECK(store.describe(1) == first.string() + ":3");
  CHECK(store.describe(3) == second.string() + ":2");
  CHECK(store.report().kept.rows == 4);
  CHECK_THROWS_AS(store.length(4), RunFailure);
  CHECK_THROWS_AS(store.length(-1), RunFailure);
}

TEST_CASE("the report counts every outcome with its first row") {
  StoreFixture fixture;
  const auto file =
      fixture.write("a.jsonl",
                    "{\"input_ids\": [1,2,3,4], \"id\": 1}\n{\"input_ids\": [1]}\n{\"input_ids\": [1,2]}\n"
                    "{\"input_ids\": [1,2,3,4]}\n{\"input_ids\": [7], \"id\": 2, \"note\": \"\"}\n");
  TokenStoreRequest request = fixture.request({file});
  request.options.cutoff_len = 3;
  const TokenStore dropping = fixture.open(request);
  CHECK(dropping.size() == 1);
  CHECK(dropping.report().overlength == RowCount{2, {0, 1}});
  CHECK(dropping.report().untrained == RowCount{2, {0, 2}});
  CHECK(dropping.report().kept == RowCount{1, {0, 3}});
  CHECK(dropping.report().rows() == 5);
  const std::string name = file.string();
  CHECK(describe_rows(dropping.report(), dropping.files(), 3) ==
        "kept 1 of 5 rows: 2 dropped as longer than cutoff_len 3 (first: " + name +
            ":1), 2 dropped without a token to train on (first: " + name + ":2)");
  CHECK(describe_ignored_columns(dropping.report(), dropping.files()) ==
        std::vector<std::string>{"the column \"id\" of 2 rows is not used (first: " + name + ":1)",
                                 "the column \"note\" of 1 rows is not used (first: " + name + ":5)"});

  request.options.overlength = OverlengthPolicy::truncate;
  const TokenStore truncating = fixture.open(request);
  REQUIRE(truncating.size() == 3);  // no row is lost and none is longer
  for (std::int64_t i = 0; i < 3; ++i) CHECK(truncating.length(i) <= 3);
  CHECK(truncating.truncated(0));
  CHECK_FALSE(truncating.truncated(1));
  CHECK(truncating.supervised(0) == 2);
  CHECK(truncating.report().truncated == RowCount{2, {0, 1}});
  CHECK(contains(describe_rows(truncating.report(), truncating.files(), 3), "2 truncated to cutoff_len 3 (first: "));
}

TEST_CASE("the file does not depend on the number of threads") {
  StoreFixture fixture;
  TokenStoreRequest request =
      fixture.request({fixture.write("a.jsonl", mixed_rows(3000)), fixture.write("b.jsonl", mixed_rows(700))});
  request.threads = 1;
  const std::string one_thread = read_file(build_token_store(request));
  const TokenStore store(build_token_store(request), request.files);
  CHECK(store.report().rows() == 3700);
  CHECK(store.report().overlength.rows > 0);
  CHECK(store.report().untrained.rows > 0);
  request.threads = 4;
  request.cache_folder = fixture.folder() / "other cache";
  CHECK(read_file(build_token_store(request)) == one_thread);
}

TEST_CASE("the cache is reused, and built again when it is damaged or cut short") {
  StoreFixture fixture;
  const TokenStoreRequest request = fixture.request({fixture.write("a.jsonl", mixed_rows(50))});
  const fs::path cache = build_token_store(request);
  const std::string content = read_file(cache);
  const auto long_ago = fs::last_write_time(cache) - std::chrono::hours(1);
  const auto rebuilt = [&] {
    fs::last_write_time(cache, long_ago);
    CHECK(build_token_store(request) == cache);
    CHECK(read_file(cache) == content);
    return fs::last_write_time(cache) != long_ago;
  };
  CHECK_FALSE(rebuilt());
  const auto size = static_cast<std::int64_t>(content.size());
  for (const std::int64_t offset : {std::int64_t{5}, size / 2, size - 150, size - 90, size - 1}) {
    flip_byte(cache, offset);
    CHECK(rebuilt());
  }
  for (const std::int64_t kept : {std::int64_t{0}, std::int64_t{10}, size / 2, size - 1}) {
    fs::resize_file(cache, static_cast<std::uintmax_t>(kept));
    CHECK_THROWS_AS(TokenStore(cache, request.files), RunFailure);
    CHECK(rebuilt());
  }
}

TEST_CASE("the cache is keyed by content and options, not by names, times and threads") {
  StoreFixture fixture;
  const std::string rows = mixed_rows(20);
  const TokenStoreRequest base =
      fixture.request({fixture.write("a.jsonl", rows), fixture.write("b.jsonl", rows + rows)});
  const fs::path key = build_token_store(base);

  TokenStoreRequest same = fixture.request({fixture.write("moved.jsonl", rows), base.files[1]});
  same.threads = 1;
  CHECK(build_token_store(same) == key);
  CHECK(contains(TokenStore(key, same.files).describe(0), "moved.jsonl:"));

  const auto key_of_changed = [&](auto change) {
    TokenStoreRequest changed = base;
    change(changed);
    return build_token_store(changed);
  };
  CHECK(key_of_changed([](TokenStoreRequest& r) { r.options.cutoff_len = 99; }) != key);
  CHECK(key_of_changed([](TokenStoreRequest& r) { r.options.vocab_size = 1001; }) != key);
  CHECK(key_of_changed([](TokenStoreRequest& r) { r.options.overlength = OverlengthPolicy::truncate; }) != key);
  CHECK(key_of_changed([](TokenStoreRequest& r) { std::swap(r.files[0], r.files[1]); }) != key);
  fixture.write("a.jsonl", rows + "\n");
  CHECK(build_token_store(base) != key);
}

TEST_CASE("bad rows are reported in file order, the same with any number of threads") {
  StoreFixture fixture;
  std::string rows = mixed_rows(2000);
  const auto lines = std::count(rows.begin(), rows.end(), '\n');
  rows += "{\"input_ids\": [1, 5000]}\n" + mixed_rows(500) + "{\"secret\": 1}\n{\"input_ids\": [1,2\n";
  TokenStoreRequest request = fixture.request({fixture.write("a.jsonl", rows)});
  std::string expected;
  for (const std::int64_t threads : {1, 2, 4}) {
    request.threads = threads;
    const std::string message = invalid_input_of([&] { build_token_store(request); });
    if (expected.empty()) expected = message;
    CHECK(message == expected);
  }
  CHECK(expected.find(fmt::format("{}:{}: input_ids[1] is 5000", request.files[0].string(), lines + 1)) == 0);
  CHECK(std::count(expected.begin(), expected.end(), '\n') == 2);
  CHECK(files_in(request.cache_folder, ".bin").empty());
  CHECK(files_in(request.cache_folder, ".partial").empty());
}

TEST_CASE("asked to stop, tokenizing ends and leaves no file") {
  StoreFixture fixture;
  TokenStoreRequest request = fixture.request({fixture.write("rows.jsonl", mixed_rows(2000))});
  int asked = 0;
  request.stop_wanted = [&] { return ++asked == 2; };
  CHECK_THROWS_AS(build_token_store(request), Stopped);
  CHECK(asked == 2);
  CHECK(files_in(request.cache_folder, ".bin").empty());
  CHECK(files_in(request.cache_folder, ".partial").empty());
}

TEST_CASE("asked to stop, the checksum of large data ends before anything is read as rows") {
  StoreFixture fixture;
  const fs::path file = fixture.write("rows.jsonl", "");
  fs::resize_file(file, 65 << 20);  // zeros: no row
  TokenStoreRequest request = fixture.request({file});
  CHECK_THROWS_AS(build_token_store(request), InvalidInput);
  request.stop_wanted = [] { return true; };
  CHECK_THROWS_AS(build_token_store(request), Stopped);
}

TEST_CASE("asked to stop, nobody waits for another process that builds the same file") {
  StoreFixture fixture;
  TokenStoreRequest request = fixture.request({fixture.write("rows.jsonl", mixed_rows(20))});
  const fs::path file = build_token_store(request);
  fs::remove(file);
  const auto locks = files_in(request.cache_folder, ".lock");
  REQUIRE(locks.size() == 1);
  const int other = ::open(locks.front().c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(::flock(other, LOCK_EX) == 0);
  int asked = 0;
  request.stop_wanted = [&] { return ++asked == 3; };
  CHECK_THROWS_AS(build_token_store(request), Stopped);
  CHECK(asked == 3);
  CHECK_FALSE(fs::exists(file));

  // The other process ends without a file: this one builds it.
  asked = 0;
  request.stop_wanted = [&] {
    if (++asked == 2) ::close(other);
    return false;
  };
  CHECK(build_token_store(request) == file);
  CHECK(fs::exists(file));
}

TEST_CASE("at most five bad rows are shown") {
  StoreFixture fixture;
  std::string rows;
  for (int i = 0; i < 1000; ++i) rows += "{}\n";
  const auto request = fixture.request({fixture.write("a.jsonl", rows)});
  const std::string message = invalid_input_of([&] { build_token_store(request); });
  CHECK(contains(message, "a.jsonl:1: "));
  CHECK(contains(message, "a.jsonl:5: "));
  CHECK_FALSE(contains(message, "a.jsonl:6: "));
  CHECK(contains(message, "further bad rows"));
}

TEST_CASE("a broken array is reported behind the rows before it") {
  StoreFixture fixture;
  const auto request = fixture.request({fixture.write("a.json", "[{\"text\": \"ab\"}, {\"txt\": 1}")});
  const std::string message = invalid_input_of([&] { build_token_store(request); });
  CHECK(contains(message, "a.json:1: the row holds \"txt\""));
  CHECK(contains(message, "a.json:1: column 28: the file ends inside its array of rows"));
}

TEST_CASE("no rows, or none left, is an error with the reasons") {
  StoreFixture fixture;
  const auto empty = fixture.write("empty.jsonl", "\n\n");
  CHECK(
      contains(invalid_input_of([&] { build_token_store(fixture.request({empty})); }), "the data set holds no rows: "));
  CHECK(contains(invalid_input_of([&] { build_token_store(fixture.request({})); }), "it has no files"));
  const auto masked = fixture.write("masked.jsonl", "{\"input_ids\": [1]}\n{\"input_ids\": [2]}\n");
  CHECK(invalid_input_of([&] {
          build_token_store(fixture.request({empty, masked}));
        }) == "no row is left to train on: kept 0 of 2 rows: 2 dropped without a token to train on (first: " +
                  masked.string() + ":1)");
  CHECK(contains(invalid_input_of([&] { build_token_store(fixture.request({"/no/such/file.jsonl"})); }),
                 "/no/such/file.jsonl: can't be opened"));
}

TEST_CASE("a cache folder that can't be written is an error of the run") {
  StoreFixture fixture;
  TokenStoreRequest request = fixture.request({fixture.write("a.jsonl", mixed_rows(3))});
  request.cache_folder = request.files[0] / "cache";  // below a file
  try {
    build_token_store(request);
    FAIL("the folder was made");
  } catch (const RunFailure& failure) {
    CHECK(test::contains(failure.what(), "a.jsonl/cache: the folder of the token cache can't be made"));
    CHECK(test::contains(failure.what(), "SKRULL_CACHE"));
  }
}

TEST_CASE("nothing is written beside the data") {
  StoreFixture fixture;
  fs::create_directory(fixture.folder() / "data");
  const TokenStoreRequest request = fixture.request({fixture.write("data/a.jsonl", mixed_rows(3))});
  build_token_store(request);
  CHECK(std::distance(fs::directory_iterator(fixture.folder() / "data"), {}) == 1);
}

TEST_CASE("a row of many megabytes") {
  StoreFixture fixture;
  const std::string text(20 << 20, 'x');
  TokenStoreRequest request = fixture.request(
      {fixture.write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"" + text + "\"}\n{\"text\": \"cd\"}\n")});
  const TokenStore dropped = fixture.open(request);
  CHECK(dropped.size() == 2);
  CHECK(dropped.report().overlength == RowCount{1, {0, 2}});
  request.options.cutoff_len = 1 << 26;
  CHECK(fixture.open(request).length(1) == (20 << 20) + 1);
}

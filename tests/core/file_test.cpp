#include "skrull/core/file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "skrull/core/checksum.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;

TEST_CASE("an atomic write replaces the old file only when complete") {
  const test::TemporaryFolder folder;
  const auto file = folder / "value.txt";
  write_file_atomically(file, "old");
  {
    AtomicFileWriter writer(file);
    writer.write("half of the n");
  }
  CHECK(read_file(file) == "old");
  write_file_atomically(file, "new");
  CHECK(read_file(file) == "new");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a folder that can't be written is an error") {
  CHECK_THROWS_AS(write_file_atomically("/no/such/folder/file", "text"), RunFailure);
}

TEST_CASE("keys that a JSON object holds twice are found with their path") {
  const test::TemporaryFolder folder;
  const auto file = folder / "repeated.json";
  write_file_atomically(file, R"({"a": 1, "b": {"a": 2, "c": [{"d": 1}, {"d": 2, "d": 3}]}, "a": 4})");
  std::vector<std::string> repeated;
  CHECK(read_ordered_json_file(file, repeated)["a"] == 4);
  CHECK(repeated == std::vector<std::string>{"b.c.d", "a"});
}

TEST_CASE("a JSON number that no double holds is refused with the file's name") {
  const test::TemporaryFolder folder;
  const auto file = folder / "huge.json";
  write_file_atomically(file, "[1e999]");
  try {
    read_json_file(file);
    FAIL("the number was accepted");
  } catch (const InvalidInput& error) {
    CHECK(std::string(error.what()) == file.string() + ": number overflow parsing '1e999'");
  }
}

TEST_CASE("missing files and bad JSON name file, line and column") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_AS(MappedFile(folder / "missing"), InvalidInput);
  CHECK_THROWS_AS(MappedFile(folder.path()), InvalidInput);
  const auto file = folder / "bad.json";
  std::ofstream(file) << "{\n  \"a\": 1,\n  oops\n}";
  try {
    read_json_file(file);
    FAIL("bad JSON was accepted");
  } catch (const InvalidInput& error) {
    CHECK(std::string(error.what()).find(file.string() + ": line 3, column") == 0);
  }
  std::ofstream(file) << "\xEF\xBB\xBF{\"a\": 1}";
  CHECK(read_json_file(file)["a"] == 1);
}

TEST_CASE("checksums tell fields apart") {
  Checksum first;
  first.add_field("ab");
  first.add_field("c");
  Checksum second;
  second.add_field("a");
  second.add_field("bc");
  CHECK(first.hex() != second.hex());
  CHECK(Checksum().hex() == "99aa06d3014798d86001c324468d497f");  // XXH3-128 of nothing, from the xxHash repository
}

TEST_CASE("a folder or a named pipe in a file's place is refused at once") {
  const test::TemporaryFolder folder;
  const auto reason = [](const std::filesystem::path& file) {
    try {
      read_file(file);
    } catch (const InvalidInput& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(reason(folder.path()) == folder.path().string() + ": is a folder, expected a file");
  const auto pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(reason(pipe) == pipe.string() + ": expected a regular file");  // not: waits for a writer
}

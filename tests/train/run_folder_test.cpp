// What replaces what in output_dir.
#include "skrull/train/run_folder.h"

#include <set>

#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;
namespace fs = std::filesystem;

namespace {

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

/// Writes files that hold `text`.
auto writer_of(const std::vector<std::string>& names, const std::string& text) {
  return [names, text](const fs::path& folder) {
    for (const std::string& name : names) write_file_atomically(folder / name, text);
  };
}

}  // namespace

TEST_CASE("a saved model replaces an earlier one, shards, index and tokenizer too") {
  const test::TemporaryFolder folder;
  const RunFolder run(folder.path());
  write_file_atomically(folder / "notes.txt", "mine");
  run.save_final(writer_of({"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                            "model-00002-of-00002.safetensors", "tokenizer.json"},
                           "old"));
  run.save_final(writer_of({"config.json", "model.safetensors"}, "new"));
  CHECK(names_in(folder.path()) == std::set<std::string>{"config.json", "model.safetensors", "notes.txt"});
  CHECK(read_file(folder / "config.json") == "new");
  CHECK(read_file(folder / "model.safetensors") == "new");
}

TEST_CASE("an earlier model is unchanged when the new one can't be saved") {
  const test::TemporaryFolder folder;
  const RunFolder run(folder.path());
  run.save_final(writer_of({"config.json", "model.safetensors"}, "old"));
  CHECK_THROWS_AS(run.save_final([&](const fs::path& temporary) {
    write_file_atomically(temporary / "model.safetensors", "new");
    throw_run_failure("the disk is full");
  }),
                  RunFailure);
  CHECK(names_in(folder.path()) == std::set<std::string>{"config.json", "model.safetensors"});

  fs::create_directories(folder / "tokenizer.json" / "in the way");
  CHECK_THROWS_AS(run.save_final(writer_of({"config.json", "model.safetensors", "tokenizer.json"}, "new")), RunFailure);
  for (const char* name : {"config.json", "model.safetensors"}) CHECK(read_file(folder / name) == "old");
  CHECK(read_file(folder / ".saving-model" / "model.safetensors") == "new");
}

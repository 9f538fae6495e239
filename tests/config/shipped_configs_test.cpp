#include <set>

#include "config_test_support.h"
#include "skrull/core/json.h"

using namespace skrull;
namespace fs = std::filesystem;

namespace {

std::vector<fs::path> shipped_configs() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(SKRULL_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  return files;
}

}  // namespace

TEST_CASE("every shipped config is accepted as it is") {
  const auto files = shipped_configs();
  CHECK(files.size() >= 8);
  std::set<fs::path> output_folders;
  for (const fs::path& file : files) {
    INFO(file.string());
    const auto config = parse_config({.file = file, .overrides = {}, .problems = {}});
    CHECK(output_folders.insert(config.output_dir).second);
    CHECK(resolve_global_batch_size(config, 1) >= 1);
  }
}

TEST_CASE("the minimal config holds the required options alone") {
  const auto json = read_json_file(fs::path(SKRULL_SOURCE_DIR) / "configs" / "minimal.json");
  std::set<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  const auto required = required_for_training();
  CHECK(keys == std::set<std::string>(required.begin(), required.end()));
}

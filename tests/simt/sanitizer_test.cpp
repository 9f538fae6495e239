// Mistakes that sanitizers find in kernels. Each runs in a process of its own, which the sanitizer ends.

#include <cstdio>
#include <string>
#include <vector>

#include "simt/sanitizers.h"
#include "support/catch.h"
#include "support/support.h"

namespace skrull {
namespace {

using Catch::Matchers::ContainsSubstring;

test::CommandResult run(const std::string& mistake, int seed) {
  return test::run_command({SKRULL_BINARY_DIR "/tests/simt_faulty_program", mistake, std::to_string(seed)});
}

void check_found(const std::vector<std::string>& mistakes, const std::string& report) {
  for (const std::string& mistake : mistakes) {
    for (int seed = 0; seed < 3; ++seed) {
      CAPTURE(mistake, seed);
      const test::CommandResult result = run(mistake, seed);
      CHECK(result.exit_code != 0);
      CHECK_THAT(result.errors, ContainsSubstring(report));
    }
  }
}

}  // namespace

TEST_CASE("correct kernels are clean") {
  for (int seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const test::CommandResult result = run("none", seed);
    CHECK(result.exit_code == 0);
    CHECK(result.output == "done\n");
    CHECK(result.errors.empty());
  }
}

TEST_CASE("memory outside an array") {
  if (!simt::address_sanitizer) {
    std::puts("skipped: takes the address sanitizer (preset asan)");
    return;
  }
  check_found({"beyond static memory", "before static memory", "beyond dynamic memory", "beyond global memory"},
              "heap-buffer-overflow");
}

TEST_CASE("races between threads and between blocks") {
  if (!simt::thread_sanitizer) {
    std::puts("skipped: takes the thread sanitizer (preset tsan)");
    return;
  }
  check_found({"race in shared memory", "race in a warp", "race behind a copy", "race between blocks"}, "data race");
}

}  // namespace skrull

// Host code that touches the stand-in's device memory, each time in a process of its own, which that ends.

#include <string>

#include "simt/sanitizers.h"
#include "support/catch.h"
#include "support/support.h"

namespace skrull {

TEST_CASE("host code that touches device memory ends with a report") {
  const std::string mistake = GENERATE("host code touches device memory", "host task touches device memory");
  CAPTURE(mistake);
  const test::CommandResult result = test::run_command({SKRULL_BINARY_DIR "/tests/simt_faulty_program", mistake, "0"});
  CHECK(result.exit_code != 0);
  CHECK(result.output.empty());
  // Sanitizers see the signal first and have words of their own.
  const bool sanitized = simt::address_sanitizer || simt::thread_sanitizer;
  CHECK_THAT(result.errors, Catch::Matchers::ContainsSubstring(
                                sanitized ? "SEGV" : "host code touched device memory while the device was at rest"));
}

}  // namespace skrull

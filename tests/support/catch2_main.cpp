#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include "support/session.h"

int skrull::test::run_session(int argc, char** argv) {
  return Catch::Session().run(argc, argv);
}
